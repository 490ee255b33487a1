"""Which classes and functions a pickle would import, read from its opcodes; nothing is run."""

from __future__ import annotations

import io
import pickletools
from dataclasses import dataclass

from edgectl.sources.source_file import SourceFile

__all__ = ["PickleNames", "is_legacy", "pickle_names"]

_LIMIT = 64 << 20
_LEGACY_MAGIC = b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
_LEGACY_PREAMBLE = 3  # magic number, protocol version, system info: a pickle each
_SAFE_MODULES = ("collections.OrderedDict", "torch._utils._rebuild", "torch._tensor._rebuild")
_SAFE_TORCH = ("Storage", "Size", "device", "dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class PickleNames:
    """``dictionary``: the outermost object is a dict. ``foreign``: names (``module.Class``)
    other than those that plain tensors and dicts need.
    """

    dictionary: bool
    foreign: tuple[str, ...]


def is_legacy(file: SourceFile) -> bool:
    """Whether it is what ``torch.save`` wrote before torch 1.6."""
    return file.head[:1] == b"\x80" and _LEGACY_MAGIC in file.head[:32]


def pickle_names(file: SourceFile) -> PickleNames | None:
    """The names in ``torch.save``'s pickle; ``None`` if the file holds none."""
    if "data.pkl" in file.members:
        stream: io.BytesIO = io.BytesIO(file.member("data.pkl", _LIMIT))
    elif is_legacy(file):
        with file.path.open("rb") as handle:
            stream = io.BytesIO(handle.read(_LIMIT))
        for _ in range(_LEGACY_PREAMBLE):
            _names(stream)
    else:
        return None
    return _names(stream)


def _names(stream: io.BytesIO) -> PickleNames:
    foreign: list[str] = []
    strings: list[str] = []
    first: str | None = None
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            name = None
            if opcode.name in ("GLOBAL", "INST"):
                name = str(argument).replace(" ", ".", 1)
            elif opcode.name == "STACK_GLOBAL":
                name = ".".join(strings[-2:])
            elif "UNICODE" in opcode.name or opcode.name in ("STRING", "SHORT_BINSTRING"):
                strings = [*strings[-1:], str(argument)]
            if first is None and (name or opcode.name in ("EMPTY_DICT", "DICT", "EMPTY_LIST")):
                first = name or opcode.name
            if name and not _is_safe(name) and name not in foreign:
                foreign.append(name)
    except (ValueError, IndexError, EOFError, UnicodeDecodeError):
        foreign.append("an opcode that cannot be read")
    dictionary = first in ("EMPTY_DICT", "DICT", "collections.OrderedDict")
    return PickleNames(dictionary=dictionary, foreign=tuple(foreign))


def _is_safe(name: str) -> bool:
    if name.startswith(_SAFE_MODULES):
        return True
    module, _, item = name.rpartition(".")
    return module == "torch" and (item.endswith(_SAFE_TORCH) or item.islower())
