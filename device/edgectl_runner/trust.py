"""Who may put models on this device: keys, and signatures over manifests.

``trusted_keys.json`` in the root holds the keys and the mode:

- ``first-use`` (the default): the first signed bundle's key is remembered. From then on a bundle
  without a signature, or with another key's, is refused.
- ``listed``: only keys that were added on purpose; with none, nothing is accepted.

A key is *active* (may install and run), *retired* (what it signed still runs, nothing new is
taken) or absent. An active key may name its successor in a signed statement, so that rotating a
key needs no visit to each device.

Order of checks: length and digest of the manifest, signature, sequence, target, runtime version.
All of it comes before the IREE runtime sees a byte, at install and at every start.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgectl_runner.durable import write_durably
from edgectl_runner.ed25519 import verify
from edgectl_runner.failures import CONFIGURATION, DEVICE, RunnerError
from edgectl_runner.manifests import ReadManifest

__all__ = ["MODES", "SIGNED_PREFIX", "TrustStore", "check_runtime", "key_id"]

SIGNED_PREFIX = b"edgectl manifest v1\0"
SUCCESSION_PREFIX = b"edgectl successor v1\0"
MODES = ("first-use", "listed")
MAX_SUCCESSIONS = 32


def key_id(public_key: bytes) -> str:
    """A short name for a key: 16 hexadecimal digits of its sha256."""
    return hashlib.sha256(public_key).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signature:
    public_key: bytes
    signature: bytes
    successions: tuple[tuple[bytes, bytes, bytes], ...]


class TrustStore:
    """The keys of one device."""

    def __init__(self, root: Path):
        self._path = root / "trusted_keys.json"

    def describe(self) -> dict[str, Any]:
        """Mode and keys, for ``edgectl keys list --device``."""
        mode, keys, _ = self._read()
        return {"mode": mode, "keys": [{"key_id": key_id(k), "state": s} for k, s in keys.items()]}

    def change(
        self, *, add: bytes | None = None, remove: str | None = None, mode: str | None = None
    ) -> dict[str, Any]:
        """Adds or removes a key, or sets the mode (inside the lock).

        Raises:
            RunnerError: no such mode or key.
        """
        old_mode, keys, unsigned = self._read()
        if mode is not None and mode not in MODES:
            raise RunnerError(f"{mode!r} is no trust mode; one of {', '.join(MODES)}", code=2)
        if add is not None:
            if len(add) != 32:
                raise RunnerError("a public key is 32 bytes", code=2)
            keys[add] = "active"
        if remove is not None:
            doomed = [k for k in keys if key_id(k) == remove]
            if not doomed:
                have = ", ".join(key_id(k) for k in keys) or "none"
                raise RunnerError(f"the device trusts no key {remove} (it trusts {have})", code=2)
            del keys[doomed[0]]
        self._write(mode or old_mode, keys, unsigned)
        return self.describe()

    def check_install(self, read: ReadManifest, signature: Any) -> bytes | None:
        """The key that signed the manifest, if this device takes new releases from it.

        ``None`` for a manifest without signature on a device that trusts nobody yet. Nothing is
        changed; `remember` does that once the release is complete.

        Raises:
            RunnerError: exit code 3, with a reason of its own for each case.
        """
        mode, keys, _ = self._read()
        if signature is None:
            if mode == "first-use" and not keys:
                return None
            raise _refused(
                "it is not signed",
                f"this device takes only models signed by {self._names(keys)}",
                "sign it: deploy without --no-sign",
            )
        found = _parse(signature)
        _check_signature(read, found)
        active = {k for k, state in keys.items() if state == "active"}
        if not keys and mode == "first-use":
            return found.public_key
        if found.public_key in active or self._succeeds(found, active):
            return found.public_key
        why = "retired" if found.public_key in keys else "unknown"
        raise _refused(
            f"it is signed by the {why} key {key_id(found.public_key)}",
            f"this device takes new models from {self._names(dict.fromkeys(active, ''))}",
            f"if that is your key: edgectl keys trust {key_id(found.public_key)} --device DEVICE",
        )

    def remember(self, key: bytes | None, signature: Any, release: str) -> None:
        """Keeps the first key seen, or a key that an active one named as its successor.

        A release that was taken without a signature, before any key was known, is noted by its
        id: taking the signature away from another does not make it one of these.
        """
        mode, keys, unsigned = self._read()
        if key is None:
            if release not in unsigned:
                self._write(mode, keys, [*unsigned, release])
            return
        if keys.get(key) == "active":
            return
        if keys:
            found = _parse(signature)
            for old, new, proof in found.successions:
                if keys.get(old) == "active" and verify(old, SUCCESSION_PREFIX + new, proof):
                    keys[old], keys[new] = "retired", "active"
        else:
            keys[key] = "active"
        self._write(mode, keys, unsigned)

    def check_start(self, read: ReadManifest, signature: Any) -> None:
        """Checks an installed release again; retired keys count, removed ones do not.

        Raises:
            RunnerError: exit code 3.
        """
        mode, keys, unsigned = self._read()
        if signature is None:
            if mode == "listed" or (keys and read.release not in unsigned):
                raise _refused(
                    "it is not signed",
                    "this device runs signed models only, or the signature was taken away",
                    "deploy the model again, signed",
                )
            return
        found = _parse(signature)
        _check_signature(read, found)
        if found.public_key not in keys:
            raise _refused(
                f"it is signed by key {key_id(found.public_key)}, which is no longer trusted",
                "the key was removed from this device",
                "deploy a model signed with a trusted key",
            )

    def _succeeds(self, found: _Signature, active: set[bytes]) -> bool:
        trusted = set(active)
        for old, new, signature in found.successions:
            if old in trusted and verify(old, SUCCESSION_PREFIX + new, signature):
                trusted.add(new)
        return found.public_key in trusted

    @staticmethod
    def _names(keys: dict[bytes, str]) -> str:
        return ", ".join(f"key {key_id(k)}" for k in keys) or "nobody"

    def _read(self) -> tuple[str, dict[bytes, str], list[str]]:
        """(mode, keys with their states, releases taken without a signature)."""
        try:
            document = json.loads(self._path.read_bytes())
            keys = {bytes.fromhex(k["public_key"]): str(k["state"]) for k in document["keys"]}
            mode = document["mode"]
            unsigned = [str(release) for release in document.get("unsigned", [])]
            if mode not in MODES:
                raise ValueError(mode)
        except FileNotFoundError:
            return "first-use", {}, []
        except (ValueError, KeyError, TypeError) as error:
            # Never fall back to trusting whoever comes first.
            raise RunnerError(
                "the device's list of trusted keys is damaged",
                code=CONFIGURATION,
                cause="the card lost data, or somebody changed trusted_keys.json",
                next_step="look at the file, or remove it to trust the next key that deploys",
            ) from error
        return mode, keys, unsigned

    def _write(self, mode: str, keys: dict[bytes, str], unsigned: list[str]) -> None:
        document = {
            "mode": mode,
            "unsigned": unsigned,
            "keys": [{"public_key": k.hex(), "state": s} for k, s in keys.items()],
        }
        write_durably(self._path, json.dumps(document, indent=1).encode(), mode=0o600)


def _parse(document: Any) -> _Signature:
    try:
        if document["schema_version"] != 1 or document["algorithm"] != "ed25519":
            raise _refused(
                "its signature is of a kind this runner does not know",
                "it comes from a newer edgectl",
                "deploy again, which updates the runner",
            )
        successions = document.get("successions", [])[:MAX_SUCCESSIONS]
        return _Signature(
            public_key=_bytes(document["public_key"], 32),
            signature=_bytes(document["signature"], 64),
            successions=tuple(
                (_bytes(s["old"], 32), _bytes(s["new"], 32), _bytes(s["signature"], 64))
                for s in successions
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _refused(
            "its signature cannot be read", "the bundle is damaged", "write the bundle again"
        ) from error


def _bytes(text: Any, length: int) -> bytes:
    data = bytes.fromhex(text)
    if len(data) != length:
        raise ValueError(f"{len(data)} bytes instead of {length}")
    return data


def _check_signature(read: ReadManifest, found: _Signature) -> None:
    if not verify(found.public_key, SIGNED_PREFIX + read.data, found.signature):
        raise _refused(
            f"its signature by key {key_id(found.public_key)} does not fit its manifest",
            "the bundle was changed after it was signed",
            "write the bundle again",
        )


def _refused(reason: str, cause: str, next_step: str | None) -> RunnerError:
    return RunnerError(
        f"the model was refused: {reason}", code=CONFIGURATION, cause=cause, next_step=next_step
    )


def check_runtime(read: ReadManifest, installed: str | None) -> None:
    """Refuses a module that another minor version of IREE compiled.

    ``installed`` is the runtime's version here, ``None`` when it cannot be told.

    Raises:
        RunnerError: exit code 7, with both versions.
    """
    compiled = read.manifest.iree_version
    if installed is None or not compiled:
        return
    if compiled.split(".")[:2] != installed.split(".")[:2]:
        raise RunnerError(
            f"the model was compiled by IREE {compiled}, the device's runtime is {installed}",
            code=DEVICE,
            cause="compiler and runtime of IREE must be of the same minor version",
            next_step="compile it again with this edgectl and deploy it",
        )
