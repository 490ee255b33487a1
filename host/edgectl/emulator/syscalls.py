"""Keeps system calls away that Debian 12's proot does not know.

proot rewrites the paths in the calls of the programs it runs. It is older than ``statx``,
``faccessat2`` and ``openat2``, would let their paths through untouched, and files would seem to
be missing. With a seccomp filter that answers ENOSYS to them, every C library falls back to the
calls that proot rewrites. The filter is inherited by everything that is started.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

__all__ = ["refuse_unknown_calls"]

_CALLS = {"x86_64": (332, 437, 439), "aarch64": (291, 437, 439)}  # statx, openat2, faccessat2
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refuse_unknown_calls() -> None:
    """Installs the filter in this process; meant to run between fork and exec."""
    calls = _CALLS.get(platform.machine(), ())
    code = [struct.pack("<HBBI", _LOAD, 0, 0, 0)]  # the number of the call
    for index, call in enumerate(calls):
        code.append(struct.pack("<HBBI", _JUMP_EQUAL, len(calls) - index, 0, call))
    code.append(struct.pack("<HBBI", _RETURN, 0, 0, _ALLOW))
    code.append(struct.pack("<HBBI", _RETURN, 0, 0, _ERRNO | errno.ENOSYS))
    program = _Program(len(code), b"".join(code))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0)
