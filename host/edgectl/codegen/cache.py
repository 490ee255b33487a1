"""Compile results by content: the same input, flags and tools give the same file back.

An entry is one file whose first 32 bytes are the sha256 of the rest, so that a torn or flipped
entry is a miss, never a wrong module. Entries are written beside and renamed into place; the
least recently used go first when the cache outgrows its limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

__all__ = ["CompileCache", "content_key"]

_DIGEST_BYTES = 32


def content_key(parts: Iterable[bytes | str]) -> str:
    """sha256 over the parts, each with its length, so that no two lists run into each other."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class CompileCache:
    """A folder of compile results, at most ``limit_bytes`` large."""

    def __init__(self, folder: Path, *, limit_bytes: int = 4 << 30):
        self.folder = folder
        self.limit_bytes = limit_bytes

    def get(self, key: str) -> bytes | None:
        """The entry, or ``None`` when it is not there or not what was written."""
        path = self.folder / key
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        body = data[_DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != data[:_DIGEST_BYTES]:
            path.unlink(missing_ok=True)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return body

    def put(self, key: str, body: bytes) -> None:
        """Stores an entry; a full or read-only disk only costs the cache, not the compile."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder, prefix=".new-")
        except OSError:
            return
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(body).digest() + body)
            temporary.replace(self.folder / key)
        except OSError:
            temporary.unlink(missing_ok=True)
            return
        self._shrink()

    def _shrink(self) -> None:
        entries = []
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another edgectl may shrink as well
                entries.append((path.stat().st_mtime, path.stat().st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit_bytes:
                return
            path.unlink(missing_ok=True)
            total -= size
