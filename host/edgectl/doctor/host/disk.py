"""Is there room for the cache (compiled models, wheels, the virtual Pi)?"""

from __future__ import annotations

import shutil

from edgectl.doctor.result import CheckResult, failed, ok, warning
from edgectl.settings import Settings

__all__ = ["check"]

_COMFORTABLE_BYTES = 3 * 10**9
_NEEDED_BYTES = 3 * 10**8


def check(settings: Settings) -> CheckResult:
    """Looks at the file system of the cache folder."""
    folder = settings.cache_dir
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    shown = f"{free / 1e9:.1f} GB free at {folder}"
    fix = f"free some space, or remove {settings.cache_dir} (it is made again when needed)"
    if free < _NEEDED_BYTES:
        return failed("disk", "host", shown, fix=fix)
    if free < _COMFORTABLE_BYTES:
        return warning("disk", "host", f"{shown}; the virtual Pi needs about 2 GB", fix=fix)
    return ok("disk", "host", shown)
