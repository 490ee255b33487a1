"""Asks the linker to keep every function of an object within one page.

A loop that lies across two pages takes two entries of the instruction TLB, and emulators translate
it in two parts. A function aligned to the power of two above its size cannot cross a page.
"""

from __future__ import annotations

import struct

__all__ = ["PAGE_BYTES", "keep_within_pages"]

PAGE_BYTES = 4096
_EXECUTABLE = 0x4  # SHF_EXECINSTR
_SECTION = struct.Struct("<IIQQQQIIQQ")


def keep_within_pages(elf: bytes) -> bytes:
    """The object with larger alignments: one section per function in, the same sections out.

    Args:
        elf: a relocatable 64-bit little-endian ELF file, compiled with ``-ffunction-sections``.

    Raises:
        ValueError: it is not such a file.
    """
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    table = struct.unpack_from("<Q", elf, 40)[0]
    entry_bytes, count = struct.unpack_from("<HH", elf, 58)
    if entry_bytes != _SECTION.size or table + count * entry_bytes > len(elf):
        raise ValueError("the ELF file's section table is damaged")
    result = bytearray(elf)
    for index in range(count):
        at = table + index * entry_bytes
        fields = list(_SECTION.unpack_from(elf, at))
        flags, size, alignment = fields[2], fields[5], fields[8]
        if flags & _EXECUTABLE and size:
            fields[8] = max(alignment, min(PAGE_BYTES, 1 << (size - 1).bit_length()))
            _SECTION.pack_into(result, at, *fields)
    return bytes(result)
