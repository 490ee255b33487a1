"""Cuts files where their content says so, so that an insertion moves no other cut.

A rolling hash over the last 32 bytes decides (the "gear" hash of FastCDC, Xia et al. 2016): a
cut follows a byte whose hash has 16 leading zero bits. Chunks are 16 to 256 KiB, about 80 KiB on
average. The hash of every position is computed with NumPy by doubling: the hash of a window of
2k bytes is that of its last k bytes plus that of its first k, shifted by k.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

__all__ = ["chunk_list", "cut"]

MIN_BYTES = 16 << 10
MAX_BYTES = 256 << 10
_WINDOW = 32
_LIMIT = np.uint32(1 << 16)  # below it: 16 leading zero bits of 32
_BLOCK = 4 << 20

_GEAR: npt.NDArray[np.uint32] = np.array(
    [int.from_bytes(hashlib.sha256(bytes([b])).digest()[:4], "big") for b in range(256)],
    dtype=np.uint32,
)


def cut(data: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """(offset, length) of each chunk of ``data``, in order; together they are all of it."""
    size = len(data)
    candidates = _candidates(data)
    start = index = 0
    while start < size:
        end = min(start + MAX_BYTES, size)
        while index < len(candidates) and candidates[index] < start + MIN_BYTES:
            index += 1
        if index < len(candidates) and candidates[index] < end:
            end = int(candidates[index])
        yield start, end - start
        start = end


def chunk_list(file: BinaryIO) -> list[tuple[str, int]]:
    """(sha256, length) of each chunk of an open file."""
    data = memoryview(file.read())
    return [
        (hashlib.sha256(data[offset : offset + length]).hexdigest(), length)
        for offset, length in cut(data)
    ]


def _candidates(data: bytes | memoryview) -> npt.NDArray[np.int64]:
    """Positions after which a cut may be made, ascending."""
    everything = np.frombuffer(data, dtype=np.uint8)
    found = []
    for start in range(0, len(everything), _BLOCK):
        # A window's worth of bytes before the block, so that blocks do not show in the result.
        first = max(0, start - _WINDOW + 1)
        hashes = _GEAR[everything[first : start + _BLOCK]]
        span = 1
        while span < _WINDOW:
            shifted = np.zeros_like(hashes)
            shifted[span:] = hashes[:-span] << np.uint32(span)
            hashes = hashes + shifted
            span *= 2
        places = np.flatnonzero(hashes < _LIMIT) + first
        found.append(places[places >= start] + 1)
    return np.concatenate(found) if found else np.empty(0, np.int64)
