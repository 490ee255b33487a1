"""Linux Landlock: this process and its children may reach only what is listed, from now on.

Needs no privilege and cannot be undone; works since Linux 5.13 where the kernel has it switched
on. Reading and writing files, opening TCP connections (6.7) and sending signals to processes
outside (6.12) are limited as far as the kernel's version knows them. Numbers are those of
``linux/landlock.h``.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

__all__ = ["abi_version", "restrict"]

_CREATE, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION_FLAG, _RULE_PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE
_FIRST_RIGHTS = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_TCP = 0b11  # bind, connect
_SCOPES = 0b11  # abstract unix sockets, signals


def abi_version() -> int:
    """The kernel's Landlock version, 0 where it has none."""
    version = _libc().syscall(_CREATE, None, 0, _VERSION_FLAG)
    return max(0, int(version))


def restrict(*, readable: Iterable[Path], writable: Iterable[Path]) -> int:
    """Shuts this process in; returns the Landlock version used, 0 if there is none.

    ``writable`` folders may also be read. Paths that do not exist are left out.

    Raises:
        OSError: the kernel has Landlock and refuses the rules.
    """
    abi = abi_version()
    if abi == 0:
        return 0
    rights = _FIRST_RIGHTS
    rights |= _REFER if abi >= 2 else 0
    rights |= _TRUNCATE if abi >= 3 else 0
    rights |= _IOCTL if abi >= 5 else 0
    attributes = struct.pack("=Q", rights)
    if abi >= 4:
        attributes += struct.pack("=Q", _TCP)
    if abi >= 6:
        attributes += struct.pack("=Q", _SCOPES)
    ruleset = _call(_CREATE, attributes, len(attributes), 0)
    try:
        for path in readable:
            _allow(ruleset, path, _READ)
        for path in writable:
            _allow(ruleset, path, rights & ~_EXECUTE)
        if _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return abi


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not path.is_dir():
            rights &= _ON_FILES | _TRUNCATE
        rule = struct.pack("=Qi", rights, handle)
        _call(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(handle)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    converted = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = int(_libc().syscall(ctypes.c_long(number), *converted))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock: {os.strerror(code)}")
    return result
