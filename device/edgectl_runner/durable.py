"""Files that survive a power cut: written, flushed, renamed into place, and the folder flushed.

The order matters. A rename that reaches the card before the data does leaves an empty file
under the new name, and a folder that was not flushed may forget the rename. So: file, its
folder, rename, folder of the new name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "fsync_directory",
    "make_directories",
    "replace_symlink",
    "sha256_of",
    "temporary_name",
    "write_durably",
]

TEMPORARY_MARK = ".tmp-"


def temporary_name(path: Path) -> Path:
    """A name beside ``path`` that nothing else uses; a crash leaves it for the next start.

    Unique on purpose: a fixed temporary name that an earlier crash left behind would be
    published by the next rename.
    """
    return path.with_name(f"{TEMPORARY_MARK}{path.name}-{os.urandom(6).hex()}")


def fsync_directory(path: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(path: Path, mode: int = 0o755) -> None:
    """``mkdir -p`` whose every new level is durable."""
    if path.is_dir():
        return
    make_directories(path.parent, mode)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=mode)
    fsync_directory(path.parent)


def write_durably(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replaces a file's content; afterwards either all of it is on the card or none.

    Raises:
        OSError: from any step, flushing included. The old content is then still there; an error
            of fsync is never retried, since the kernel may have dropped the pages.
    """
    with _temporary_file(path, mode) as (descriptor, temporary):
        _write_all(descriptor, data)
        os.fsync(descriptor)
        fsync_directory(path.parent)
        temporary.replace(path)
    fsync_directory(path.parent)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@contextlib.contextmanager
def _temporary_file(path: Path, mode: int) -> Iterator[tuple[int, Path]]:
    temporary = temporary_name(path)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        yield descriptor, temporary
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(descriptor)


def replace_symlink(link: Path, target: str) -> None:
    """Points ``link`` at ``target`` in one step; a reader sees the old or the new, never none."""
    temporary = temporary_name(link)
    temporary.symlink_to(target)
    try:
        fsync_directory(link.parent)
        temporary.replace(link)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    fsync_directory(link.parent)


def sha256_of(path: Path) -> str:
    """Hexadecimal sha256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 18)
        view = memoryview(buffer)
        while count := file.readinto(buffer):
            digest.update(view[:count])
    return digest.hexdigest()
