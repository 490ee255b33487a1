"""Arrays at the border of the model: dtypes by name, ``.npy`` files, and the check of inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgectl_runner.contract import TensorSpec
from edgectl_runner.failures import USAGE, RunnerError

__all__ = ["check_inputs", "dtype_named", "load_npy", "save_npz"]

_EXTENSION_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def dtype_named(name: str) -> np.dtype[Any]:
    """NumPy's dtype of that name, including those that the ``ml_dtypes`` package adds.

    Raises:
        RunnerError: nothing of that name exists.
    """
    if name in _EXTENSION_DTYPES:
        import ml_dtypes

        extension: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return extension
    try:
        return np.dtype(name)
    except TypeError as error:
        raise RunnerError(f"this runner knows no dtype {name!r}") from error


def load_npy(path: Path, spec: TensorSpec | None = None) -> np.ndarray:
    """Maps an array from a ``.npy`` file; its pages are read when they are used.

    ``spec`` gives back a dtype that the file format cannot name (bfloat16 is stored as two raw
    bytes). Pickled objects are refused.
    """
    try:
        # An array without elements cannot be mapped, and one of a page or less need not be.
        mode: Literal["r"] | None = "r" if path.stat().st_size > 1 << 16 else None
        array: np.ndarray = np.load(path, mmap_mode=mode, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise RunnerError(
            f"{path.name} is not a readable .npy array: {error}",
            code=USAGE,
            cause="the file was cut off, or holds Python objects instead of numbers",
        ) from error
    if spec is not None and array.dtype.kind == "V":
        wanted = dtype_named(spec.dtype)
        if wanted.itemsize == array.dtype.itemsize:
            array = array.view(wanted)
    return array


def save_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes named arrays to an uncompressed ``.npz`` file."""
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def check_inputs(specs: Sequence[TensorSpec], given: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The inputs as the compiled function wants them, or one error that lists all that is wrong.

    Strides are made C-contiguous (a copy where they are not). Dtypes are never converted: a
    silent float64 to float32 would change the numbers of a comparison.

    Raises:
        RunnerError: exit code 2; expected and got, input by input.
    """
    problems = []
    if len(specs) != len(given):
        names = ", ".join(spec.name for spec in specs) or "none"
        problems.append(f"expected {len(specs)} inputs ({names}), got {len(given)}")
    for spec, array in zip(specs, given, strict=False):
        if array.dtype != dtype_named(spec.dtype) or not _shape_fits(spec.shape, array.shape):
            problems.append(
                f"input {spec.name!r}: expected {_describe(spec.shape, spec.dtype)}, "
                f"got {_describe(array.shape, array.dtype.name)}"
            )
    problems.extend(_inconsistent_dimensions(specs, given) if not problems else ())
    if problems:
        raise RunnerError(
            "; ".join(problems),
            code=USAGE,
            cause="the arrays are not what the model was exported with",
            next_step="convert them first (numpy.ascontiguousarray(x, dtype=...)) or export the "
            "model again with --input-spec",
        )
    # ascontiguousarray would turn a scalar into one dimension.
    return [a if a.flags.c_contiguous else np.ascontiguousarray(a) for a in given]


def _shape_fits(wanted: tuple[int | None, ...], got: tuple[int, ...]) -> bool:
    return len(wanted) == len(got) and all(
        w is None or w == g for w, g in zip(wanted, got, strict=True)
    )


def _inconsistent_dimensions(
    specs: Sequence[TensorSpec], given: Sequence[np.ndarray]
) -> tuple[str, ...]:
    """Varying dimensions may be empty only if the model's own shape said 0."""
    return tuple(
        f"input {spec.name!r}: dimension {axis} is 0"
        for spec, array in zip(specs, given, strict=True)
        for axis, size in enumerate(array.shape)
        if size == 0 and spec.shape[axis] is None
    )


def _describe(shape: Sequence[int | None], dtype: str) -> str:
    sizes = "x".join("?" if size is None else str(size) for size in shape)
    return f"{sizes}x{dtype}" if sizes else f"scalar {dtype}"
