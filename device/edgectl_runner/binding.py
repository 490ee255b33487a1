"""IREE's native runtime, without the Python package around it.

``import iree.runtime`` brings in benchmarks, random numbers and ``ml_dtypes`` as well: 10 MB of
memory, and a second of start on a small board, for nothing that runs a module. All that the
engine needs is in the native library, which the package re-exports unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["element_type_of", "native_runtime"]

# NumPy's name -> the name of HAL's element type.
_ELEMENT_TYPES = {
    "bool": "BOOL_8",
    "int8": "SINT_8",
    "int16": "SINT_16",
    "int32": "SINT_32",
    "int64": "SINT_64",
    "uint8": "UINT_8",
    "uint16": "UINT_16",
    "uint32": "UINT_32",
    "uint64": "UINT_64",
    "float16": "FLOAT_16",
    "float32": "FLOAT_32",
    "float64": "FLOAT_64",
    "bfloat16": "BFLOAT_16",
    "float8_e4m3fn": "FLOAT_8_E4M3_FN",
    "float8_e5m2": "FLOAT_8_E5M2",
    "complex64": "COMPLEX_64",
    "complex128": "COMPLEX_128",
}


def native_runtime() -> Any:
    """The native library's Python module."""
    try:
        from iree._runtime_libs import _runtime
    except ImportError:  # a wheel that keeps it elsewhere: the public way, whatever it weighs
        from iree.runtime import _binding as _runtime
    return _runtime


def element_type_of(dtype: np.dtype[Any]) -> Any | None:
    """HAL's element type for NumPy's, or ``None`` if there is none."""
    name = _ELEMENT_TYPES.get(dtype.name)
    return None if name is None else getattr(native_runtime().HalElementType, name, None)
