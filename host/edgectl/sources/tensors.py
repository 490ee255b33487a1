"""Between torch tensors and NumPy arrays, with NumPy's names for dtypes on both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from edgectl.errors import UnsupportedModelError, UsageError

__all__ = ["dtype_name", "from_tensor", "shape_text", "to_tensor", "torch_dtype"]

_DTYPES: dict[str, torch.dtype] = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
    "bool": torch.bool,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """NumPy's name of a torch dtype (``torch.float32`` -> ``float32``)."""
    return _NAMES.get(dtype, str(dtype).removeprefix("torch."))


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of NumPy's name.

    Raises:
        UsageError: there is none.
    """
    if name not in _DTYPES:
        raise UsageError(
            f"No model takes inputs of dtype {name}.",
            next_step=f"Use one of {', '.join(_DTYPES)}.",
        )
    return _DTYPES[name]


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor with its own copy of the data, so that nothing the model does reaches the array."""
    torch_dtype(array.dtype.name)
    # Big-endian files are legal .npy; torch has no such dtype. ascontiguousarray would turn a
    # scalar into an array of one element, hence the shape.
    native = np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)
    if native.dtype.name == "bfloat16":
        return torch.from_numpy(native.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(native).reshape(array.shape)


def from_tensor(tensor: torch.Tensor) -> np.ndarray:
    """A NumPy copy.

    Raises:
        UnsupportedModelError: the dtype or layout has no NumPy counterpart.
    """
    plain = tensor.detach().cpu()
    if plain.layout is not torch.strided or plain.is_quantized or plain.dtype not in _NAMES:
        kind = "quantized" if plain.is_quantized else f"{plain.layout} {plain.dtype}"
        raise UnsupportedModelError(
            f"A tensor at the model's boundary is {kind}, which no device can exchange.",
            next_step="Convert it to a dense float or integer tensor inside forward.",
        )
    if plain.dtype is torch.bfloat16:
        import ml_dtypes

        bits: np.ndarray = plain.contiguous().view(torch.int16).numpy().copy()
        return bits.view(ml_dtypes.bfloat16)
    array: np.ndarray = plain.resolve_conj().resolve_neg().contiguous().numpy().copy()
    return array


def shape_text(value: Any) -> str:
    """``1x3x224x224xfloat32`` of a tensor or an array, as messages spell it."""
    dtype = dtype_name(value.dtype) if isinstance(value, torch.Tensor) else value.dtype.name
    return "x".join([*(str(size) for size in value.shape), dtype])
