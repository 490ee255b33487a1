"""Keys of this user, and signatures over bundle manifests.

    signature = sign_manifest(manifest_bytes, load_key(folder))

A key is made by itself at the first deployment and kept in the configuration folder
(``keys/default.key``, readable by the user alone). A device remembers the first key it meets and
takes nothing signed by another from then on. `rotate_key` makes a new key and lets the old one
testify for it, so that devices follow by themselves at their next deployment.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from edgectl.errors import ConfigurationError, UsageError

__all__ = [
    "SigningKey",
    "create_key",
    "list_keys",
    "load_key",
    "load_or_create_key",
    "rotate_key",
    "sign_manifest",
    "verify_signature",
]

# These prefixes are what the device puts before the signed bytes (edgectl_runner/trust.py).
_MANIFEST_PREFIX = b"edgectl manifest v1\0"
_SUCCESSION_PREFIX = b"edgectl successor v1\0"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
DEFAULT_NAME = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """One key pair; ``successions`` are the statements of its predecessors, the oldest first."""

    name: str
    path: Path
    private_key: Ed25519PrivateKey
    successions: tuple[Mapping[str, str], ...] = ()

    @property
    def public_key(self) -> bytes:
        """The 32 bytes that devices remember."""
        return self.private_key.public_key().public_bytes_raw()

    @property
    def key_id(self) -> str:
        """16 hexadecimal digits that name the key in messages."""
        return hashlib.sha256(self.public_key).hexdigest()[:16]


def create_key(folder: Path, name: str = DEFAULT_NAME) -> SigningKey:
    """Makes a key and keeps it in ``folder``, readable by its owner alone.

    Raises:
        UsageError: there is one of that name, or the name is not one.
    """
    path = _path(folder, name)
    if path.exists():
        raise UsageError(
            f"there is a key named {name!r} already",
            next_step=f"make a successor with 'edgectl keys rotate {name}'",
        )
    _write(path, Ed25519PrivateKey.generate())
    return load_key(folder, name)


def load_key(folder: Path, name: str = DEFAULT_NAME) -> SigningKey:
    """Reads a key.

    Raises:
        ConfigurationError: it is missing, unreadable, or others may read it.
    """
    path = _path(folder, name)
    try:
        data = path.read_bytes()
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        have = ", ".join(k.name for k in list_keys(folder)) or "none"
        raise ConfigurationError(
            f"there is no key {name!r} (keys: {have})",
            cause=str(error),
            next_step=f"make one with 'edgectl keys create {name}'",
        ) from error
    if mode & 0o077:
        raise ConfigurationError(
            f"others than you may read the key {path} (mode {mode:03o})",
            next_step=f"chmod 600 {path}, and rotate it if somebody may have read it",
        )
    try:
        private_key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"the key {path} cannot be read: {error}") from error
    if not isinstance(private_key, Ed25519PrivateKey):
        raise ConfigurationError(f"the key {path} is not an Ed25519 key")
    return SigningKey(
        name=name,
        path=path,
        private_key=private_key,
        successions=_read_successions(path.with_suffix(".successions.json")),
    )


def load_or_create_key(folder: Path) -> SigningKey:
    """The user's default key, made now when there is none."""
    if not _path(folder, DEFAULT_NAME).exists():
        return create_key(folder)
    return load_key(folder)


def list_keys(folder: Path) -> tuple[SigningKey, ...]:
    """All keys of this user, by name; files that are no keys are left out."""
    found = []
    for path in sorted(folder.glob("*.key")):
        try:
            found.append(load_key(folder, path.stem))
        except ConfigurationError:
            continue
    return tuple(found)


def rotate_key(folder: Path, name: str = DEFAULT_NAME) -> SigningKey:
    """Replaces a key; the old one signs a statement that names the new one, and is kept aside."""
    old = load_key(folder, name)
    new = Ed25519PrivateKey.generate()
    public_key = new.public_key().public_bytes_raw()
    statement = {
        "old": old.public_key.hex(),
        "new": public_key.hex(),
        "signature": old.private_key.sign(_SUCCESSION_PREFIX + public_key).hex(),
    }
    statements = json.dumps([*old.successions, statement], indent=1)
    retired = folder / "retired"
    retired.mkdir(mode=0o700, exist_ok=True)
    # The statement first: a new key without it would be a stranger to every device.
    old.path.with_suffix(".successions.json").write_text(statements, encoding="utf-8")
    kept = retired / f"{name}-{old.key_id}.key"
    kept.unlink(missing_ok=True)
    kept.hardlink_to(old.path)
    _write(old.path, new)
    return load_key(folder, name)


def sign_manifest(manifest: bytes, key: SigningKey) -> dict[str, Any]:
    """The document that goes with a manifest (``signature.json``)."""
    return {
        "schema_version": 1,
        "algorithm": "ed25519",
        "key_id": key.key_id,
        "public_key": key.public_key.hex(),
        "signature": key.private_key.sign(_MANIFEST_PREFIX + manifest).hex(),
        "successions": [dict(s) for s in key.successions],
    }


def verify_signature(manifest: bytes, signature: Mapping[str, Any]) -> bool:
    """Whether a signature document fits a manifest (not whether its key is trusted)."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature["public_key"]))
        key.verify(bytes.fromhex(signature["signature"]), _MANIFEST_PREFIX + manifest)
    except (InvalidSignature, ValueError, KeyError, TypeError):
        return False
    return True


def _path(folder: Path, name: str) -> Path:
    if not _NAME.match(name):
        raise UsageError(f"{name!r} cannot name a key (letters, digits, '_', '.', '-')")
    return folder / f"{name}.key"


def _write(path: Path, key: Ed25519PrivateKey) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)


def _read_successions(path: Path) -> tuple[Mapping[str, str], ...]:
    try:
        statements = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the statements of former keys in {path} cannot be read: {error}",
            next_step="restore the file, or remove it and trust the new key on each device",
        ) from error
    return tuple(statements)
