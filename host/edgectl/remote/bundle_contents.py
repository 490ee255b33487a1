"""Reads a bundle the way a transfer needs it: manifest text, chunks, and where each chunk lies."""

from __future__ import annotations

import contextlib
import hashlib
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgectl.errors import UsageError
from edgectl.remote.chunking import cut

if TYPE_CHECKING:
    from edgectl.signing import SigningKey

__all__ = ["Contents", "install_request", "open_bundle", "read_chunks", "read_contents"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The bundle's manifest text and, for each distinct file, its bytes' place and chunks."""

    manifest: str
    signature: Any
    chunks: dict[str, list[list[Any]]]
    places: dict[str, tuple[str, int]]
    size_bytes: int


@contextlib.contextmanager
def open_bundle(path: Path) -> Iterator[zipfile.ZipFile]:
    """The bundle as an archive.

    Raises:
        UsageError: it is missing, cut off, or something else.
    """
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{path} is not a bundle: {error}",
            cause="the file is missing, cut off, or something else",
            next_step="write it again with 'edgectl compile'",
        ) from error
    with archive:
        yield archive


def read_contents(archive: zipfile.ZipFile) -> Contents:
    """Digests and cuts every file of a bundle.

    Raises:
        UsageError: a file is not what the manifest says, or there is no readable manifest.
    """
    try:
        manifest = archive.read("manifest.json").decode("utf-8")
        entries = json.loads(manifest)["files"]
        signature = None
        if "signature.json" in archive.namelist():
            signature = json.loads(archive.read("signature.json"))
        chunks: dict[str, list[list[Any]]] = {}
        places: dict[str, tuple[str, int]] = {}
        size = 0
        for name, entry in sorted(entries.items()):
            sha256 = entry["sha256"]
            if sha256 in chunks:
                continue
            data = archive.read(name)
            if hashlib.sha256(data).hexdigest() != sha256:
                raise UsageError(
                    f"the bundle's {name} is not what its manifest says",
                    cause="the file was changed or damaged after it was written",
                    next_step="write the bundle again with 'edgectl compile'",
                )
            size += len(data)
            chunks[sha256] = []
            for offset, length in cut(data):
                digest = hashlib.sha256(data[offset : offset + length]).hexdigest()
                chunks[sha256].append([digest, length])
                places.setdefault(digest, (name, offset))
    except (KeyError, ValueError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"the bundle cannot be read: {type(error).__name__}: {error}",
            cause="the file is cut off or was not written by edgectl",
            next_step="write it again with 'edgectl compile'",
        ) from error
    return Contents(
        manifest=manifest, signature=signature, chunks=chunks, places=places, size_bytes=size
    )


def read_chunks(
    archive: zipfile.ZipFile, contents: Contents, chunks: Sequence[Sequence[Any]]
) -> Iterator[bytes]:
    """The bytes of chunks, each given as [sha256, length]."""
    open_name, data = "", b""
    for sha256, length in chunks:
        name, offset = contents.places[sha256]
        if name != open_name:
            open_name, data = name, archive.read(name)
        yield data[offset : offset + length]


def install_request(
    contents: Contents,
    *,
    who: str,
    activate: bool,
    key: SigningKey | None,
    allow_downgrade: bool,
    health: Mapping[str, float] | bool,
) -> dict[str, Any]:
    """What the runner's ``have`` and ``install`` are asked with (see `push.push_bundle`)."""
    signature = contents.signature
    if signature is None and key is not None:
        from edgectl.signing import sign_manifest

        signature = sign_manifest(contents.manifest.encode(), key)
    return {
        "manifest": contents.manifest,
        "signature": signature,
        "chunks": contents.chunks,
        "who": who,
        "activate": activate,
        "allow_downgrade": allow_downgrade,
        "health": dict(health) if isinstance(health, Mapping) else health,
    }
