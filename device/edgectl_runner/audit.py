"""What happened to this device: one JSON line per transition, on the card before we go on.

A power cut can tear the last line; the next record starts on a line of its own, and readers skip
what is not JSON. No decision is made from the times in it: a Pi has no clock of its own.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from edgectl_runner.durable import fsync_directory

__all__ = ["AuditLog"]

MAX_BYTES = 1 << 20


class AuditLog:
    """An append-only log of at most two files of `MAX_BYTES` each."""

    def __init__(self, path: Path):
        self._path = path

    def append(self, event: str, *, release: str | None, who: str, **details: Any) -> None:
        """Writes one record and waits until it is durable.

        Raises:
            OSError: the record is not on the card; the caller must not go on.
        """
        record = {
            "event": event,
            "release": release,
            "who": who,
            "boot_id": boot_id(),
            "monotonic_s": round(time.monotonic(), 3),
            "wall": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "clock_synced": Path("/run/systemd/timesync/synchronized").exists(),
            **details,
        }
        line = (json.dumps(record, sort_keys=True) + "\n").encode()
        self._rotate()
        created = not self._path.exists()
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            # One write, so that a full disk leaves a torn line at worst, which readers skip.
            written = os.write(descriptor, line)
            if written != len(line):
                os.ftruncate(descriptor, size)
                raise OSError(28, "No space left on device", str(self._path))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if created:
            fsync_directory(self._path.parent)

    def _rotate(self) -> None:
        try:
            if self._path.stat().st_size < MAX_BYTES:
                return
        except FileNotFoundError:
            return
        self._path.replace(self._path.with_name(self._path.name + ".1"))
        fsync_directory(self._path.parent)

    def records(self, last: int = 100) -> list[dict[str, Any]]:
        """The newest records, oldest first; torn lines are left out."""
        found: list[dict[str, Any]] = []
        for path in (self._path.with_name(self._path.name + ".1"), self._path):
            try:
                lines = path.read_bytes().splitlines()
            except FileNotFoundError:
                continue
            for line in lines:
                try:
                    record = json.loads(line)
                except ValueError:
                    continue
                if isinstance(record, dict):
                    found.append(record)
        return found[-last:]


def boot_id() -> str:
    """Which boot this is; monotonic times of one boot can be compared."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
