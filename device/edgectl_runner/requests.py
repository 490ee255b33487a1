"""Reads the requests of the host: values of the right type, or one clear refusal.

Every function raises `RunnerError` with exit code 2 for what it cannot take.
"""

from __future__ import annotations

from typing import Any

from edgectl_runner.failures import USAGE, RunnerError
from edgectl_runner.manifests import ReadManifest, plain_name, read_manifest
from edgectl_runner.objects import Chunk, Pack

__all__ = ["Document", "bundle_of", "packs_of", "strings_of", "who_of"]

Document = dict[str, Any]

MAX_CHUNK_BYTES = 4 << 20


def bundle_of(request: Document) -> tuple[ReadManifest, dict[str, list[Chunk]]]:
    """The manifest, checked, and the chunks of each of its files by the file's sha256."""
    text = request.get("manifest")
    if not isinstance(text, str):
        raise RunnerError("the request has no manifest", code=USAGE)
    # Lone surrogates, which JSON can smuggle in, become bytes that the manifest reader refuses.
    read = read_manifest(text.encode("utf-8", "surrogatepass"))
    given = request.get("chunks")
    chunks: dict[str, list[Chunk]] = {}
    for name, entry in read.manifest.files.items():
        listed = given.get(entry.sha256) if isinstance(given, dict) else None
        chunks[entry.sha256] = _chunks(listed, name)
        total = sum(c.length for c in chunks[entry.sha256])
        if total != entry.size_bytes:
            raise RunnerError(
                f"the chunks of {name} are {total} bytes, the file is {entry.size_bytes}",
                code=USAGE,
            )
    return read, chunks


def _chunks(listed: object, where: str) -> list[Chunk]:
    if not isinstance(listed, list):
        raise RunnerError(f"the request has no chunk list for {where}", code=USAGE)
    chunks = []
    for item in listed:
        if (
            not isinstance(item, list)
            or len(item) != 2
            or not isinstance(item[0], str)
            or len(item[0]) != 64
            or type(item[1]) is not int
            or not 0 < item[1] <= MAX_CHUNK_BYTES
        ):
            raise RunnerError(f"a chunk of {where} is not a digest and a length", code=USAGE)
        chunks.append(Chunk(item[0], item[1]))
    return chunks


def packs_of(request: Document) -> tuple[Pack, ...]:
    """The packs that the host says it sent: those of `have`, and repairs."""
    given = request.get("packs", [])
    if not isinstance(given, list):
        raise RunnerError("'packs' is not a list", code=USAGE)
    packs = []
    for item in given:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise RunnerError("a pack has no name", code=USAGE)
        name, whole = plain_name(item["name"]), item.get("whole")
        packs.append(
            Pack(
                name=name,
                chunks=tuple(_chunks(item.get("chunks"), name)),
                whole=whole if isinstance(whole, str) else None,
            )
        )
    return tuple(packs)


def who_of(request: Document) -> str:
    """Who asks, for the audit log."""
    who = request.get("who", "")
    return who[:200] if isinstance(who, str) else ""


def strings_of(request: Document, key: str) -> list[str]:
    """A list of texts."""
    value = request.get(key)
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise RunnerError(f"{key!r} is not a list of names", code=USAGE)
    return value
