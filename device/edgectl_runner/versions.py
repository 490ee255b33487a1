"""Old versions of the runner and of its packages: which of them nothing uses any more."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from edgectl_runner.durable import fsync_directory, temporary_name

__all__ = ["collect_versions"]


def collect_versions(root: Path, *, dry_run: bool) -> tuple[list[str], int]:
    """Removes ``runner/*`` and ``env/*`` folders that are not in use; (removed, bytes freed).

    In use is what this process runs from, what another process of this user was started with,
    and what a service unit names.
    """
    mentions = _mentions()
    removed, freed = [], 0
    for kind in ("runner", "env"):
        folder = root / kind
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            name = f"{kind}/{path.name}"
            if path.name.startswith(".") or any(name in text for text in mentions):
                continue
            removed.append(name)
            freed += sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
            if not dry_run:
                # Renamed first: half a package folder must not pass for a whole one.
                doomed = temporary_name(path)
                path.rename(doomed)
                fsync_directory(folder)
                shutil.rmtree(doomed)
    return removed, freed


def _mentions() -> list[str]:
    """Texts in which a folder that is in use is named."""
    texts = ["\n".join(sys.path), __file__]
    units = [Path("/etc/systemd/system"), Path.home() / ".config" / "systemd" / "user"]
    places = [p for folder in units for p in folder.glob("*.service")]
    for process in Path("/proc").glob("[0-9]*"):
        places += [process / "environ", process / "cmdline"]
    for place in places:
        try:
            texts.append(place.read_bytes().decode("utf-8", "replace"))
        except OSError:
            continue  # another user's, or just ended
    return texts
