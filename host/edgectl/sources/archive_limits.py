"""Stops a hostile archive before anything of it is unpacked.

torch stores tensors without compression, so their sizes can never add up to more than the file;
TorchScript compresses its source code, which is never large. Whatever breaks that (a tensor of
compressed zeros, members that overlap) is a bomb, or not torch's.
"""

from __future__ import annotations

import zipfile

from edgectl.errors import UsageError
from edgectl.sources.source_file import SourceFile

__all__ = ["check_archive"]

_MOST_MEMBERS = 200_000
_MOST_UNPACKED = 64 << 20


def check_archive(file: SourceFile) -> None:
    """Returns if ``file`` is a whole archive of a plausible size (or no ZIP at all).

    Raises:
        UsageError: it is cut off or damaged, or claims to hold more than it can.
    """
    if not file.is_zip:
        return
    try:
        with zipfile.ZipFile(file.path) as archive:
            infos = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise UsageError(
            f"{file.path} is cut off or damaged: it begins as a model file and has no end "
            f"({file.size} bytes, sha256 {file.sha256}).",
            cause=f"A download or a copy that did not finish ({error}).",
            next_step="Compare size and sha256 with the original, and download it again.",
        ) from error
    if len(infos) > _MOST_MEMBERS:
        raise _bomb(file, f"it holds {len(infos)} members")
    packed = sum(i.file_size for i in infos if i.compress_type != zipfile.ZIP_STORED)
    if packed > _MOST_UNPACKED:
        raise _bomb(file, f"its compressed members would unpack to {packed} bytes")
    total = sum(i.file_size for i in infos if i.compress_type == zipfile.ZIP_STORED)
    if total > file.size:
        raise _bomb(file, f"its members claim {total} bytes and the file has {file.size}")


def _bomb(file: SourceFile, why: str) -> UsageError:
    return UsageError(
        f"{file.path} was not opened: {why}.",
        cause="The file is damaged, or made to exhaust this computer.",
        next_step="Save the model again with torch.save or torch.export.save.",
    )
