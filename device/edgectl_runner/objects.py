"""Files by digest: ``objects/aa/<sha256>``, the chunks they are made of, and what has arrived.

The host cuts each file into chunks and names them; this side remembers the list beside the
object (``<sha256>.chunks``). So it can say which chunks of a new file it already holds inside
other files, without cutting anything itself. What is missing travels in *packs*: concatenated
chunks, written to ``incoming/`` from any offset on, so that a broken transfer continues.
Everything is digested again here before it becomes an object.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgectl_runner.durable import (
    fsync_directory,
    make_directories,
    sha256_of,
    temporary_name,
    write_durably,
)

__all__ = ["Chunk", "ChunkMap", "ObjectStore", "Pack", "plan_packs"]

PARTIAL_SUFFIX = ".part"  # of `edgectl.remote`'s transfers
WHOLE_FILE_BYTES = 256 << 10  # a missing file this large travels as a pack of its own


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of bytes by digest and length."""

    sha256: str
    length: int


ChunkMap = Mapping[str, Sequence[Chunk]]
"""The chunks of each file, by the file's sha256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """Chunks that travel one after the other; ``whole`` is the file that they make up, if one."""

    name: str
    chunks: tuple[Chunk, ...]
    whole: str | None = None

    @property
    def size_bytes(self) -> int:
        """How long the pack is when it has arrived."""
        return sum(chunk.length for chunk in self.chunks)


class ObjectStore:
    """The objects of one device and the packs that are still arriving."""

    def __init__(self, root: Path):
        self._objects = root / "objects"
        self._incoming = root / "incoming"

    def path(self, sha256: str) -> Path:
        """Where the object of that digest is, or would be."""
        return self._objects / sha256[:2] / sha256

    def has(self, sha256: str, size_bytes: int) -> bool:
        """Whether the object is here (and whole: it got its name only when verified)."""
        try:
            return self.path(sha256).stat().st_size == size_bytes
        except FileNotFoundError:
            return False

    def received(self, pack: Pack) -> int:
        """Bytes of the pack that have arrived; one that is too long is thrown away."""
        for path in self._arriving(pack.name):
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                continue
            if size <= pack.size_bytes:
                return size
            path.unlink()
        return 0

    def _arriving(self, name: str) -> tuple[Path, Path]:
        """The pack, and the name that the host's transfer gives it until it is complete."""
        return self._incoming / name, self._incoming / (name + PARTIAL_SUFFIX)

    def discard(self, packs: Iterable[Pack]) -> None:
        """Removes what has arrived of the packs."""
        for pack in packs:
            self.discard_named(pack.name)

    def discard_named(self, name: str) -> bool:
        """Removes a file of ``incoming/``, complete or not; whether there was one."""
        found = False
        for path in self._arriving(name):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
                found = True
        return found

    def known_chunks(self) -> dict[str, list[tuple[Path, int]]]:
        """Where each chunk can be read from the objects here: (file, offset)."""
        found: dict[str, list[tuple[Path, int]]] = {}
        for listing in self._objects.glob("??/*.chunks"):
            path = listing.with_suffix("")
            if not path.exists():
                continue  # a kill between the list and its object
            offset = 0
            for chunk in _read_listing(listing):
                found.setdefault(chunk.sha256, []).append((path, offset))
                offset += chunk.length
        return found

    def adopt(
        self,
        sha256: str,
        chunks: Sequence[Chunk],
        packs: Sequence[Pack],
        known: Mapping[str, list[tuple[Path, int]]],
    ) -> list[Chunk]:
        """Makes the object from packs and other objects; verified and durable when it returns.

        Returns:
            Chunks that are nowhere to be had intact (nothing was changed then); empty if all
            went well.
        """
        target = self.path(sha256)
        make_directories(target.parent)
        for pack in packs:
            arrived = self._incoming / pack.name
            if pack.whole == sha256 and arrived.exists() and sha256_of(arrived) == sha256:
                self._publish(arrived, target, chunks)
                return []
        sources = _pack_sources(packs, self._incoming)
        for digest, places in known.items():
            sources.setdefault(digest, []).extend(places)
        temporary = temporary_name(target)
        lost: list[Chunk] = []
        whole = hashlib.sha256()
        try:
            with temporary.open("xb") as file:
                for chunk in chunks:
                    data = _read_verified(chunk, sources.get(chunk.sha256, ()))
                    if data is None:
                        lost.append(chunk)
                        continue
                    if not lost:
                        whole.update(data)
                        file.write(data)
            if not lost and whole.hexdigest() != sha256:
                # Each chunk is what it says and the file is not: the list itself is wrong.
                lost = list(chunks)
            if not lost:
                self._publish(temporary, target, chunks)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
        return lost

    def _publish(self, source: Path, target: Path, chunks: Sequence[Chunk]) -> None:
        descriptor = os.open(source, os.O_RDONLY)
        try:
            os.fchmod(descriptor, 0o444)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if len(chunks) > 1:
            listing = json.dumps([[c.sha256, c.length] for c in chunks]).encode()
            write_durably(target.with_name(target.name + ".chunks"), listing)
        fsync_directory(source.parent)
        source.replace(target)
        fsync_directory(target.parent)

    def remove_unreferenced(self, keep: frozenset[str]) -> int:
        """Removes objects that are not in ``keep`` and returns the bytes freed."""
        freed = 0
        for path in sorted(self._objects.glob("??/*")):
            if path.name.removesuffix(".chunks") not in keep:
                freed += path.stat().st_size
                path.unlink()
        for folder in self._objects.glob("??"):
            with contextlib.suppress(OSError):
                folder.rmdir()
        return freed


def plan_packs(
    files: Mapping[str, int], chunks: ChunkMap, known: Mapping[str, object]
) -> tuple[Pack, ...]:
    """Which bytes must travel so that all ``files`` (sha256 to size) can be made.

    A large file of which nothing is here gets a pack of its own, which is renamed into place
    (each byte is written once); everything else shares one.
    """
    packs: list[Pack] = []
    shared: dict[str, Chunk] = {}
    for sha256, size_bytes in files.items():
        unknown = [c for c in chunks[sha256] if c.sha256 not in known]
        if size_bytes >= WHOLE_FILE_BYTES and len(unknown) == len(chunks[sha256]):
            packs.append(Pack(name=f"{sha256}.object", chunks=tuple(unknown), whole=sha256))
        else:
            shared.update((c.sha256, c) for c in unknown)
    in_packs = {c.sha256 for pack in packs for c in pack.chunks}
    rest = tuple(c for c in shared.values() if c.sha256 not in in_packs)
    if rest:
        name = hashlib.sha256("".join(c.sha256 for c in rest).encode()).hexdigest()
        packs.append(Pack(name=f"{name}.pack", chunks=rest))
    return tuple(packs)


def _pack_sources(packs: Iterable[Pack], incoming: Path) -> dict[str, list[tuple[Path, int]]]:
    sources: dict[str, list[tuple[Path, int]]] = {}
    for pack in packs:
        offset = 0
        for chunk in pack.chunks:
            sources.setdefault(chunk.sha256, []).append((incoming / pack.name, offset))
            offset += chunk.length
    return sources


def _read_verified(chunk: Chunk, places: Iterable[tuple[Path, int]]) -> bytes | None:
    for path, offset in places:
        try:
            with path.open("rb", buffering=0) as file:
                data = os.pread(file.fileno(), chunk.length, offset)
        except FileNotFoundError:
            continue
        if hashlib.sha256(data).hexdigest() == chunk.sha256:
            return data
    return None


def _read_listing(path: Path) -> list[Chunk]:
    try:
        return [Chunk(str(sha), int(length)) for sha, length in json.loads(path.read_bytes())]
    except (OSError, ValueError, TypeError):
        return []  # a damaged list only costs bytes on the wire
