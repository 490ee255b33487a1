"""Datatypes of the Open Inference Protocol (``FP32``) and NumPy's names for them (``float32``)."""

from __future__ import annotations

__all__ = ["DATATYPES", "NUMPY_NAMES"]

NUMPY_NAMES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BF16": "bfloat16",
}
DATATYPES = {name: datatype for datatype, name in NUMPY_NAMES.items()}
