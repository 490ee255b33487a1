"""Reads a bundle's manifest without believing it: sizes, names and digests are checked first.

The release id is the first 16 hexadecimal digits of the sha256 of the manifest's bytes, so that
a manifest cannot be exchanged under an installed release.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from dataclasses import dataclass

from edgectl_runner.contract import ContractError, Manifest, from_document
from edgectl_runner.failures import RunnerError

__all__ = ["ReadManifest", "check_release_id", "plain_name", "read_manifest"]

MAX_MANIFEST_BYTES = 16 << 20
MAX_FILES = 20_000
MAX_FILE_BYTES = 8 << 30
MAX_NAME_CHARACTERS = 200
MAX_DEPTH = 8
RESERVED_NAMES = frozenset({"manifest.json", "signature.json"})

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_RELEASE = re.compile(r"[0-9a-f]{16}\Z")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@=,-]*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadManifest:
    """A checked manifest, its exact bytes, and the release id that follows from them."""

    release: str
    digest: str
    data: bytes
    manifest: Manifest


def check_release_id(release: object) -> str:
    """Returns the id if it is one; anything else could be a path.

    Raises:
        RunnerError: exit code 2.
    """
    if not isinstance(release, str) or not _RELEASE.match(release):
        raise RunnerError(f"{release!r} is not a release id (16 hexadecimal digits)", code=2)
    return release


def plain_name(name: str) -> str:
    """A file name in ``incoming/`` that leads nowhere else.

    Raises:
        RunnerError: exit code 2.
    """
    if not name or name.startswith(".") or "/" in name or "\0" in name or len(name) > 200:
        raise RunnerError(f"{name!r} is not a plain file name", code=2)
    return name


def read_manifest(data: bytes) -> ReadManifest:
    """Decodes and checks a manifest.

    Raises:
        RunnerError: it is too large, not JSON, of another version, or names files that could
            leave the release's folder.
    """
    if len(data) > MAX_MANIFEST_BYTES:
        raise _refused(f"it is {len(data)} bytes long; at most {MAX_MANIFEST_BYTES} are read")
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _refused(f"it is not JSON ({error})") from error
    try:
        manifest = from_document(Manifest, document)
    except (ContractError, RecursionError, TypeError) as error:
        raise _refused(str(error)) from error
    _check_files(manifest)
    digest = hashlib.sha256(data).hexdigest()
    return ReadManifest(release=digest[:16], digest=digest, data=data, manifest=manifest)


def _check_files(manifest: Manifest) -> None:
    if len(manifest.files) > MAX_FILES:
        raise _refused(f"it lists {len(manifest.files)} files; at most {MAX_FILES} are taken")
    seen: dict[str, str] = {}
    for name, entry in manifest.files.items():
        _check_name(name)
        # Two names that one file system may take for the same file.
        key = unicodedata.normalize("NFC", name).casefold()
        if key in seen:
            raise _refused(f"the names {seen[key]!r} and {name!r} may be the same file")
        seen[key] = name
        if not _SHA256.match(entry.sha256):
            raise _refused(f"{name!r} has no sha256 digest")
        if not 0 <= entry.size_bytes <= MAX_FILE_BYTES:
            raise _refused(f"{name!r} claims {entry.size_bytes} bytes")
    for name in seen:
        parts = name.split("/")
        for depth in range(1, len(parts)):
            if "/".join(parts[:depth]) in seen:
                raise _refused(f"{seen['/'.join(parts[:depth])]!r} is both a file and a folder")
    referenced = [manifest.module]
    referenced += [s.initial for e in manifest.entry_points for s in e.states]
    referenced += [n for call in manifest.golden for n in (*call.inputs, *call.outputs)]
    for name in referenced:
        if name not in manifest.files:
            raise _refused(f"it refers to {name!r}, which is not among its files")
    for call in manifest.golden:
        if not 0 <= call.entry_point < len(manifest.entry_points):
            raise _refused(f"a golden call is for entry point {call.entry_point}")


def _check_name(name: str) -> None:
    parts = name.split("/")
    safe = (
        len(name) <= MAX_NAME_CHARACTERS
        and len(parts) <= MAX_DEPTH
        and all(_NAME.match(part) for part in parts)
    )
    if not safe or name.casefold() in RESERVED_NAMES:
        raise _refused(f"the file name {name[:80]!r} is not allowed")


def _refused(reason: str) -> RunnerError:
    return RunnerError(
        f"the bundle's manifest was refused: {reason}",
        cause="the bundle is damaged, was altered, or comes from another version of edgectl",
        next_step="write the bundle again with this edgectl",
    )
