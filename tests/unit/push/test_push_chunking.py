"""Cuts follow the content, so that a change moves only the chunks around it."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edgectl.remote.chunking import MAX_BYTES, MIN_BYTES, cut


def noise(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8).tobytes()


def digests(data: bytes) -> list[tuple[str, int]]:
    return [(hashlib.sha256(data[o : o + n]).hexdigest(), n) for o, n in cut(data)]


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 3_000_000), st.integers(0, 5))
def test_chunks_are_all_of_the_data_in_order_and_of_bounded_size(size: int, seed: int) -> None:
    data = noise(size, seed)
    pieces = list(cut(data))
    assert b"".join(data[o : o + n] for o, n in pieces) == data
    assert all(n <= MAX_BYTES for _, n in pieces)
    assert all(n >= MIN_BYTES for _, n in pieces[:-1])


def test_blocks_of_the_hash_computation_do_not_show(monkeypatch) -> None:
    from edgectl.remote import chunking

    data = noise(2_000_000)
    whole = list(cut(data))
    monkeypatch.setattr(chunking, "_BLOCK", 100_003)
    assert list(cut(data)) == whole


def test_an_insertion_changes_few_chunks() -> None:
    data = noise(5_000_000)
    changed = data[:1_000_000] + b"inserted" + data[1_000_000:]
    known = {d for d, _ in digests(data)}
    new = sum(n for d, n in digests(changed) if d not in known)
    assert new <= 2 * MAX_BYTES


def test_constant_data_is_cut_at_the_largest_size() -> None:
    assert [n for _, n in cut(bytes(600_000))] == [MAX_BYTES, MAX_BYTES, 600_000 - 2 * MAX_BYTES]
