"""Reads ``known_hosts`` files line by line, so that one bad line spoils only its own host.

A line is ``[@marker] hosts keytype base64 [comment]``; hosts are names (``[name]:port`` when the
port is not 22), patterns with ``*``, ``?`` and ``!``, or one salted HMAC-SHA1 of a name.
Format: sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT".
"""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgectl.errors import ConfigurationError

__all__ = ["KnownKey", "KnownKeys", "fingerprint", "known_keys", "remember_host_key"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """One key of a host, with where it is written (``file:line``)."""

    key_type: str
    blob: bytes
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKeys:
    """What the files say about one host name.

    ``unreadable`` holds one sentence per line that names this host (or may name it) and cannot
    be read: whoever decides must refuse then. ``authorities`` counts ``@cert-authority`` lines,
    which edgectl does not use.
    """

    keys: tuple[KnownKey, ...] = ()
    revoked: tuple[KnownKey, ...] = ()
    unreadable: tuple[str, ...] = ()
    authorities: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def fingerprint(blob: bytes) -> str:
    """``SHA256:...``, as ``ssh-keygen -l`` prints it."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode("ascii")
    return "SHA256:" + digest.rstrip("=")


def known_keys(files: Sequence[Path], names: Sequence[str]) -> KnownKeys:
    """Collects every line of ``files`` about one of ``names``; missing files hold none.

    Raises:
        ConfigurationError: a file is there and cannot be read; an unread file could hold the
            line that revokes the key.
    """
    keys: list[KnownKey] = []
    revoked: list[KnownKey] = []
    unreadable: list[str] = []
    authorities: list[str] = []
    skipped: list[str] = []
    for path in files:
        for number, line in enumerate(_lines(path), start=1):
            where = f"{path}:{number}"
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            marker = words.pop(0).lower() if words[0].startswith("@") else ""
            try:
                matches, key = _parse(words, names, where)
                if marker not in ("", "@revoked", "@cert-authority"):
                    raise _BadLineError(f"the marker {marker} is unknown", matches=matches)
            except _BadLineError as error:
                # A revocation that cannot be read might be about any host.
                concerned = error.matches or (marker == "@revoked" and error.matches is None)
                (unreadable if concerned else skipped).append(f"{where}: {error}")
                continue
            if not matches:
                continue
            if marker == "@revoked":
                revoked.append(key)
            elif marker == "@cert-authority":
                authorities.append(where)
            else:
                keys.append(key)
    return KnownKeys(
        keys=tuple(keys),
        revoked=tuple(revoked),
        unreadable=tuple(unreadable),
        authorities=tuple(authorities),
        skipped=tuple(skipped),
    )


def remember_host_key(path: Path, name: str, key_type: str, blob: bytes) -> None:
    """Appends one line in one write; the file and its folder are private to the user.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    line = f"{name} {key_type} {base64.b64encode(blob).decode('ascii')}\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("ab+") as file:
            file.seek(0, 2)
            if file.tell() > 0:
                file.seek(-1, 2)
                # A line left without its end by another program must not swallow ours.
                line = line if file.read(1) == b"\n" else "\n" + line
            file.write(line.encode("utf-8"))
        path.chmod(0o600)
    except OSError as error:
        raise ConfigurationError(
            f"cannot remember the host key in {path}: {error.strerror}",
            next_step=f"make {path.parent} writable",
        ) from error


class _BadLineError(ValueError):
    """``matches`` tells whether the line is about our host; ``None`` when that is unreadable."""

    def __init__(self, message: str, *, matches: bool | None):
        super().__init__(message)
        self.matches = matches


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the known hosts in {path}: {error.strerror}",
            next_step=f"check its permissions: ls -l {path}",
        ) from error


def _parse(words: list[str], names: Sequence[str], where: str) -> tuple[bool, KnownKey]:
    if not words:
        raise _BadLineError("a marker and nothing else", matches=None)
    matches = _names_match(words[0], names)
    if len(words) < 3:
        raise _BadLineError("expected: hosts, key type, key", matches=matches)
    key_type, text = words[1], words[2]
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _BadLineError("the key is not base64", matches=matches) from None
    size = int.from_bytes(blob[:4], "big")
    if len(blob) < 8 or blob[4 : 4 + size] != key_type.encode("utf-8"):
        raise _BadLineError(f"the key is not of the type {key_type}", matches=matches)
    if not _is_whole(blob):
        raise _BadLineError("the key is cut short or followed by other bytes", matches=matches)
    return matches, KnownKey(key_type=key_type, blob=blob, where=where)


def _is_whole(blob: bytes) -> bool:
    """A key blob is a sequence of length-prefixed fields and nothing after the last."""
    position = 0
    while position < len(blob):
        position += 4 + int.from_bytes(blob[position : position + 4], "big")
    return position == len(blob)


def _names_match(hosts: str, names: Sequence[str]) -> bool:
    if hosts.startswith("|"):
        parts = hosts.split("|")
        if len(parts) != 4 or parts[1] != "1":
            raise _BadLineError("the hashed host name is malformed", matches=None)
        try:
            salt, digest = (base64.b64decode(part, validate=True) for part in parts[2:])
        except (binascii.Error, ValueError):
            raise _BadLineError("the hashed host name is not base64", matches=None) from None
        # SHA-1 is what the format prescribes; it hides names here and protects nothing.
        return any(
            hmac.compare_digest(hmac.new(salt, name.encode("utf-8"), hashlib.sha1).digest(), digest)
            for name in names
        )
    return any(_pattern_list_matches(hosts, name) for name in names)


def _pattern_list_matches(patterns: str, name: str) -> bool:
    matched = False
    for pattern in patterns.split(","):
        wanted = pattern.removeprefix("!").lower().replace("[", "[[]")
        if fnmatch.fnmatchcase(name, wanted):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched
