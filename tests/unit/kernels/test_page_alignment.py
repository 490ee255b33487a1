"""Functions of a kernel object stay within one page."""

from __future__ import annotations

import struct

import pytest

from edgectl.codegen.kernels.page_alignment import keep_within_pages

_SECTION = struct.Struct("<IIQQQQIIQQ")


def _object(*sections: tuple[int, int, int]) -> bytes:
    """An ELF file with sections of (flags, size, alignment)."""
    head = bytearray(64)
    head[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", head, 40, 64)
    struct.pack_into("<HH", head, 58, _SECTION.size, len(sections))
    rows = [_SECTION.pack(0, 1, f, 0, 0, size, 0, 0, align, 0) for f, size, align in sections]
    return bytes(head) + b"".join(rows)


def _alignments(elf: bytes) -> list[int]:
    rows = range(64, len(elf), _SECTION.size)
    return [_SECTION.unpack_from(elf, at)[8] for at in rows]


def test_code_is_aligned_to_the_power_of_two_above_its_size():
    elf = _object((6, 700, 64), (6, 1024, 4), (6, 9000, 64), (6, 20, 64))
    assert _alignments(keep_within_pages(elf)) == [1024, 1024, 4096, 64]


def test_data_and_empty_sections_are_left_alone():
    elf = _object((2, 700, 16), (6, 0, 4))
    assert keep_within_pages(elf) == elf


@pytest.mark.parametrize("damaged", [b"", b"\x7fELF\x01\x01" + bytes(80), _object((6, 8, 4))[:-8]])
def test_other_files_are_refused(damaged):
    with pytest.raises(ValueError, match="ELF"):
        keep_within_pages(damaged)
