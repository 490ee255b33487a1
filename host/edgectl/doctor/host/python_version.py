"""Is this Python one that edgectl supports?"""

from __future__ import annotations

import platform
import sys

from edgectl.doctor.result import CheckResult, failed, ok
from edgectl.settings import Settings

__all__ = ["check"]

_OLDEST, _BEYOND = (3, 11), (3, 14)


def check(_settings: Settings, version: tuple[int, int] | None = None) -> CheckResult:
    """``version`` is this interpreter's by default."""
    found = version or sys.version_info[:2]
    if not _OLDEST <= found < _BEYOND:
        return failed(
            "Python",
            "host",
            f"Python {'.'.join(map(str, found))} is not supported (3.11 to 3.13 are)",
            fix="install edgectl in a virtual environment of Python 3.11, 3.12 or 3.13",
        )
    return ok("Python", "host", platform.python_version())
