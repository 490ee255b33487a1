"""``.safetensors``: 8 bytes of length, a JSON header, raw data. It cannot hold code.

Read here rather than by a library so that every limit is checked before memory is used: the
header's size, offsets inside the file and not overlapping, sizes that agree with shapes.
"""

from __future__ import annotations

import json
import math
from typing import Any

import torch

from edgectl.errors import UsageError
from edgectl.sources.source_file import SourceFile

__all__ = ["is_safetensors", "read_safetensors"]

_HEADER_LIMIT = 100_000_000
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def is_safetensors(file: SourceFile) -> bool:
    """A length, then the opening brace of the header."""
    return file.size > 8 and file.head[8:9] == b"{" and file.head[6:8] == b"\0\0"


def read_safetensors(file: SourceFile) -> dict[str, torch.Tensor]:
    """Every tensor of the file.

    Raises:
        UsageError: the header is too large, cannot be read, or does not agree with the file.
    """
    length = int.from_bytes(file.head[:8], "little")
    if length > _HEADER_LIMIT:
        raise _broken(file, f"its header claims {length} bytes; {_HEADER_LIMIT} are allowed")
    if length > file.size - 8:
        raise _broken(file, f"its header claims {length} bytes and the file has {file.size}")
    with file.path.open("rb") as handle:
        handle.seek(8)
        try:
            header = json.loads(handle.read(length))
            entries = {k: _entry(v) for k, v in header.items() if k != "__metadata__"}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _broken(file, f"its header cannot be read ({error})") from error
        end = 0
        for name, (dtype, shape, start, stop) in sorted(entries.items(), key=lambda e: e[1][2]):
            if start < end or stop > file.size - 8 - length:
                raise _broken(file, f"tensor {name!r} overlaps another or ends after the file")
            if stop - start != math.prod(shape) * dtype.itemsize or min(shape, default=0) < 0:
                raise _broken(file, f"tensor {name!r} has another size than its shape says")
            end = stop
        data = bytearray(file.size - 8 - length)
        handle.readinto(data)
    return {
        name: torch.frombuffer(data, dtype=dtype, offset=start, count=math.prod(shape)).reshape(
            shape
        )
        if math.prod(shape)
        else torch.empty(shape, dtype=dtype)
        for name, (dtype, shape, start, _) in entries.items()
    }


def _entry(value: Any) -> tuple[torch.dtype, tuple[int, ...], int, int]:
    start, stop = value["data_offsets"]
    shape = tuple(value["shape"])
    if not all(type(number) is int for number in (start, stop, *shape)) or start < 0:
        raise ValueError("a size that is no whole number")
    return _DTYPES[value["dtype"]], shape, start, stop


def _broken(file: SourceFile, why: str) -> UsageError:
    return UsageError(
        f"{file.path} is a damaged safetensors file: {why}.",
        cause=f"It has {file.size} bytes, sha256 {file.sha256}. A download that did not finish "
        "leaves such a file.",
        next_step="Compare size and sha256 with the original, and download it again.",
    )
