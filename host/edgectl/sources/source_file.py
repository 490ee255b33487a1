"""What can be told about a model file without loading it: size, digest, first bytes, members."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from edgectl.errors import UsageError

__all__ = ["SourceFile", "open_source"]

_HEAD_BYTES = 4096
_LFS = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True)
class SourceFile:
    """A file that is there and is not empty. ``head`` is its first 4 KiB."""

    path: Path
    size: int
    head: bytes

    @cached_property
    def sha256(self) -> str:
        """Digest of all bytes, as lower-case hexadecimal."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @cached_property
    def is_zip(self) -> bool:
        """Whether it begins as a ZIP does (it may still be cut off)."""
        return self.head[:4] in (b"PK\x03\x04", b"PK\x05\x06")

    @cached_property
    def members(self) -> dict[str, int]:
        """Names without the archive's root folder, and sizes; empty if it is no whole ZIP."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                infos = archive.infolist()
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
            return {}
        return {info.filename.partition("/")[2] or info.filename: info.file_size for info in infos}

    def member(self, name: str, limit: int = 1 << 20) -> bytes:
        """The first ``limit`` bytes of the member with that name below the root folder."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                for info in archive.infolist():
                    if (info.filename.partition("/")[2] or info.filename) == name:
                        with archive.open(info) as file:
                            return file.read(limit)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError):
            return b""
        return b""


def open_source(source: str | Path) -> SourceFile:
    """Looks at a file.

    Raises:
        UsageError: it is not there, is a folder, is empty, cannot be read, or is a Git LFS
            pointer instead of the file itself.
    """
    path = Path(source).expanduser()
    try:
        if path.is_dir():
            raise UsageError(
                f"{path} is a folder, not a model file.",
                next_step="Name the file in it, or a Python factory as package.module:function.",
            )
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        size = path.stat().st_size
    except FileNotFoundError:
        raise UsageError(
            f"There is no file {path}.",
            cause="A relative path counts from the folder in which edgectl was started.",
            next_step="Check the path with ls.",
        ) from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    if size == 0:
        raise UsageError(
            f"{path} is empty.",
            cause="A download or a copy that did not finish leaves such a file.",
            next_step="Download or save the model again.",
        )
    if head.startswith(_LFS):
        raise _pointer(path, head)
    return SourceFile(path=path, size=size, head=head)


def _pointer(path: Path, head: bytes) -> UsageError:
    fields = dict(
        line.split(" ", 1) for line in head.decode("ascii", "replace").splitlines() if " " in line
    )
    return UsageError(
        f"{path} is a Git LFS pointer, not the model: the model itself has "
        f"{fields.get('size', 'an unknown number of')} bytes ({fields.get('oid', 'no digest')}).",
        cause="The repository was cloned without Git LFS.",
        next_step=f"git lfs install && git lfs pull --include {path.name}",
    )
