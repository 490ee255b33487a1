"""Named arrays in one file: a JSON table and raw bytes. What it can hold is numbers only.

    8 bytes   length of the table, little-endian
    table     {"name": {"dtype": "float32", "shape": [2, 3], "offset": 0}, ...}
    data      C order, little-endian; two names may share an offset

It is how the loading process hands tensors back: unlike a pickle it has no way to name code, and
unlike ``.npz`` it keeps bfloat16 and shares what is shared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgectl.sources.untrusted_files import read_regular

__all__ = ["MalformedTensorFileError", "read_tensors", "write_tensors"]

_TABLE_LIMIT = 64 << 20
_FILE_LIMIT = 64 << 30
_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_PLAIN = _INTEGERS | {"bool", "float16", "float32", "float64", "complex64", "complex128"}


class MalformedTensorFileError(ValueError):
    """The table is not what it should be, or points outside of the file."""


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes every array; arrays that are the same object are written once."""
    table: dict[str, Any] = {}
    offsets: dict[int, int] = {}
    chunks: list[np.ndarray] = []
    end = 0
    for name, array in arrays.items():
        if id(array) not in offsets:
            offsets[id(array)] = end
            chunks.append(array)
            end += array.nbytes
        table[name] = {
            "dtype": array.dtype.name,
            "shape": list(array.shape),
            "offset": offsets[id(array)],
        }
    head = json.dumps(table).encode()
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little"))
        file.write(head)
        for chunk in chunks:
            file.write(np.ascontiguousarray(chunk).tobytes())


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Reads every array; nothing larger than the file itself is allocated.

    Raises:
        MalformedTensorFileError: the file is not one of these.
    """
    try:
        data = read_regular(path, _FILE_LIMIT)
    except OSError as error:
        raise MalformedTensorFileError(str(error)) from error
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(_TABLE_LIMIT, len(data) - 8):
        raise MalformedTensorFileError("the table is longer than the file")
    try:
        table = json.loads(data[8 : 8 + length])
        return {
            str(name): _array(entry, memoryview(data)[8 + length :])
            for name, entry in table.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MalformedTensorFileError(str(error)) from error


def _array(entry: Any, data: memoryview) -> np.ndarray:
    shape = tuple(int(size) for size in entry["shape"])
    offset = int(entry["offset"])
    dtype = _dtype(entry["dtype"])
    count = math.prod(shape)
    if min((0, offset, *shape)) < 0 or offset + count * dtype.itemsize > len(data):
        raise MalformedTensorFileError("an array lies outside of the file")
    return np.frombuffer(data, dtype=dtype, count=count, offset=offset).reshape(shape).copy()


def _dtype(name: Any) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes

        wide: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return wide
    if name not in _PLAIN:
        raise MalformedTensorFileError(f"unknown dtype {name!r}")
    plain: np.dtype[Any] = np.dtype(name)
    return plain
