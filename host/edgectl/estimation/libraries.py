"""The machine code inside a compiled module: where each dispatch's function begins.

IREE embeds its executables as ELF shared objects without symbols. What is known of the dispatches
is a table of pointers to their functions and one of pointers to their names, in the same order;
both are filled in by relocations, and are found by those.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from edgectl.errors import EdgectlError

__all__ = ["Library", "find_libraries"]

_MAGIC = b"\x7fELF\x02\x01\x01"
_AARCH64 = 183
_LOAD, _DYNAMIC, _EXECUTABLE = 1, 2, 1
_RELA, _RELA_SIZE = 7, 8
_RELATIVE = 1027  # R_AARCH64_RELATIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One ELF object: its code, the offset of that in memory, and its functions' offsets."""

    text: bytes
    text_offset: int
    functions: dict[str, int]


def find_libraries(vmfb: bytes, names: frozenset[str]) -> tuple[Library, ...]:
    """The libraries in a module that hold any of the named dispatches.

    Raises:
        EdgectlError: a name is in none of them.
    """
    found = []
    missing = set(names)
    for start in _starts(vmfb):
        library = _library(vmfb[start:], names)
        if library is not None and missing & library.functions.keys():
            missing -= library.functions.keys()
            found.append(library)
    if missing:
        raise EdgectlError(
            f"The code of {sorted(missing)[0]!r} was not found in the compiled module.",
            cause="The module is not for aarch64, or of a version of IREE with another layout.",
            next_step="Estimate with --static.",
        )
    return tuple(found)


def _starts(data: bytes) -> Iterator[int]:
    position = data.find(_MAGIC)
    while position >= 0:
        (machine,) = struct.unpack_from("<H", data, position + 18)
        if machine == _AARCH64:
            yield position
        position = data.find(_MAGIC, position + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    kind: int
    flags: int
    file_offset: int
    address: int
    size: int

    def holds(self, address: int) -> bool:
        return self.address <= address < self.address + self.size


def _library(elf: bytes, names: frozenset[str]) -> Library | None:
    segments = _segments(elf)
    loaded = [s for s in segments if s.kind == _LOAD]
    code = next((s for s in loaded if s.flags & _EXECUTABLE), None)
    if code is None:
        return None
    pointers: list[tuple[int, list[int]]] = []
    strings: list[tuple[int, list[str]]] = []
    last, kind = -1, ""
    for place, value in sorted(_relocations(elf, segments).items()):
        name = None if code.holds(value) else _string(elf, loaded, value)
        now = "code" if code.holds(value) else "name" if name else ""
        fresh = place != last + 8 or now != kind
        if now == "code":
            if fresh:
                pointers.append((place, []))
            pointers[-1][1].append(value)
        elif name:
            if fresh:
                strings.append((place, []))
            strings[-1][1].append(name)
        last, kind = place, now
    for place, table in strings:
        before = [p for p in pointers if p[0] < place and len(p[1]) == len(table)]
        if names & set(table) and before:
            return Library(
                text=elf[code.file_offset : code.file_offset + code.size],
                text_offset=code.address,
                functions=dict(zip(table, before[-1][1], strict=True)),
            )
    return None


def _segments(elf: bytes) -> list[_Segment]:
    (table,) = struct.unpack_from("<Q", elf, 32)
    size, count = struct.unpack_from("<HH", elf, 54)
    found = []
    for index in range(count):
        kind, flags, offset, address, _, file_size, _, _ = struct.unpack_from(
            "<IIQQQQQQ", elf, table + index * size
        )
        found.append(
            _Segment(kind=kind, flags=flags, file_offset=offset, address=address, size=file_size)
        )
    return found


def _relocations(elf: bytes, segments: list[_Segment]) -> dict[int, int]:
    """Relative relocations: the place that is filled in, and with which address."""
    tags: dict[int, int] = {}
    for segment in segments:
        if segment.kind == _DYNAMIC:
            for offset in range(segment.file_offset, segment.file_offset + segment.size, 16):
                tag, value = struct.unpack_from("<QQ", elf, offset)
                tags.setdefault(tag, value)
    start = _file_offset(segments, tags.get(_RELA, 0))
    found = {}
    for offset in range(start, start + tags.get(_RELA_SIZE, 0), 24):
        place, kind, value = struct.unpack_from("<QQq", elf, offset)
        if kind == _RELATIVE:
            found[place] = value
    return found


def _file_offset(segments: list[_Segment], address: int) -> int:
    for segment in segments:
        if segment.kind == _LOAD and segment.holds(address):
            return segment.file_offset + address - segment.address
    return 0


def _string(elf: bytes, segments: list[_Segment], address: int) -> str | None:
    if not any(s.holds(address) for s in segments):
        return None
    start = _file_offset(segments, address)
    text = elf[start : elf.find(b"\0", start)]
    return text.decode("ascii") if text and text.isascii() and text.decode().isprintable() else None
