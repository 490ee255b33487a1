"""Decides whether a host key may be trusted: known, unknown, changed or revoked.

There is no way to make edgectl accept a changed or revoked key; ``--accept-new-host-key`` is for
hosts of which no key is known at all.
"""

from __future__ import annotations

import base64
import shlex
from dataclasses import dataclass
from pathlib import Path

from edgectl.errors import ConfigurationError, HostKeyError
from edgectl.remote.known_hosts import KnownKeys, fingerprint, known_keys, remember_host_key
from edgectl.remote.ssh_config import HostSettings
from edgectl.remote.ssh_options import SshOptions

__all__ = ["HostKeyVerifier"]

_DEFAULT_ORDER = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKeyVerifier:
    """What is known about one host before it shows its key.

    ``portless`` holds the keys of the same host without its port: as in OpenSSH they may vouch
    for another port, and count for nothing when they differ.
    """

    settings: HostSettings
    options: SshOptions
    name: str
    known: KnownKeys
    portless: KnownKeys

    @classmethod
    def of(cls, settings: HostSettings, options: SshOptions) -> HostKeyVerifier:
        """Reads the known hosts files that concern the host."""
        if settings.host_key_alias is not None:
            name = settings.host_key_alias.lower()
        elif settings.port == 22:
            name = settings.hostname.lower()
        else:
            name = f"[{settings.hostname.lower()}]:{settings.port}"
        known = known_keys(settings.known_hosts_files, [name])
        if known.skipped:
            more = f" (and {len(known.skipped) - 1} more lines)" if len(known.skipped) > 1 else ""
            options.warn(f"skipped {known.skipped[0]}{more}")
        portless = KnownKeys()
        if settings.port != 22 and settings.host_key_alias is None:
            portless = known_keys(settings.known_hosts_files, [settings.hostname.lower()])
        return cls(settings=settings, options=options, name=name, known=known, portless=portless)

    def algorithm_order(self) -> tuple[str, ...]:
        """Host key algorithms to ask for: those of the keys that are known come first.

        Otherwise a host known by its ED25519 key that also has an RSA key looks unknown
        (paramiko/paramiko#67). The others follow so that a host which lost its key gets the
        message about changed keys, not one about algorithms.
        """
        types = {key.key_type for key in self.known.keys or self.portless.keys}
        known = tuple(a for a in _DEFAULT_ORDER if _key_type(a) in types)
        return known + tuple(a for a in _DEFAULT_ORDER if a not in known)

    def verify(self, key_type: str, blob: bytes) -> None:
        """Accepts the key, or remembers it when that was asked for.

        Raises:
            HostKeyError: unknown, changed, revoked, or a line about this host is unreadable.
        """
        shown = fingerprint(blob)
        self._refuse_revoked(key_type, blob)
        if self.known.unreadable:
            raise HostKeyError(
                f"cannot tell whether the key of {self.name} is known: {self.known.unreadable[0]}",
                cause="the line is about this host and damaged, so no key is accepted for it",
                next_step=f"correct or delete that line; the host now shows {key_type} {shown}",
            )
        if any(known.blob == blob for known in self.known.keys):
            return
        if self.known.keys:
            expected = "; ".join(
                f"{known.key_type} {fingerprint(known.blob)} ({known.where})"
                for known in self.known.keys
            )
            raise HostKeyError(
                f"the host key of {self.name} has CHANGED: known is {expected}; it now shows"
                f" {key_type} {shown}",
                cause="the device was reinstalled, has another device's address, or somebody is"
                " listening in",
                next_step="compare with the device's own screen (ssh-keygen -lf"
                f" {_device_key_file(key_type)}); only if they agree, delete the old line"
                f" (ssh-keygen -R {shlex.quote(self.name)} -f {self._file_of_first_key()}) and"
                " connect again",
            )
        if any(known.blob == blob for known in self.portless.keys):
            return
        self._accept_unknown(key_type, blob, shown)

    def _accept_unknown(self, key_type: str, blob: bytes, shown: str) -> None:
        strictness = self.settings.strict_host_key_checking
        if self.options.accept_new_host_key or strictness == "accept-new":
            remember_host_key(self.options.known_hosts_file, self.name, key_type, blob)
            self.options.warn(
                f"accepted the new host key of {self.name}: {key_type} {shown}"
                f" (kept in {self.options.known_hosts_file})"
            )
            return
        authorities = self.known.authorities
        raise HostKeyError(
            f"the host key of {self.name} is unknown: {key_type} {shown}",
            cause=(
                f"it is vouched for by a certificate authority ({authorities[0]}), which edgectl"
                " does not support"
                if authorities
                else "this computer has not connected to it before"
            ),
            next_step="compare the fingerprint with the device's (ssh-keygen -lf"
            f" {_device_key_file(key_type)} there), then run the same command with"
            " --accept-new-host-key",
        )

    def _refuse_revoked(self, key_type: str, blob: bytes) -> None:
        where = next(
            (
                key.where
                for key in (*self.known.revoked, *self.portless.revoked)
                if key.blob == blob
            ),
            None,
        )
        if where is None and self.settings.revoked_keys_file is not None:
            where = _revoked_in(self.settings.revoked_keys_file, blob)
        if where is not None:
            raise HostKeyError(
                f"the host key of {self.name} is REVOKED: {key_type} {fingerprint(blob)} ({where})",
                cause="the key was marked as stolen or withdrawn",
                next_step="do not connect; ask whoever marked it, or give the device a new host"
                " key",
            )

    def _file_of_first_key(self) -> str:
        return shlex.quote(self.known.keys[0].where.rpartition(":")[0])


def _key_type(algorithm: str) -> str:
    """RSA keys are ``ssh-rsa`` in files whatever hash signs with them."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm


def _device_key_file(key_type: str) -> str:
    kind = {"ssh-ed25519": "ed25519", "ssh-rsa": "rsa"}.get(key_type, "ecdsa")
    return f"/etc/ssh/ssh_host_{kind}_key.pub"


def _revoked_in(path: Path, blob: bytes) -> str | None:
    """``RevokedHostKeys``: a text file with one public key a line (no binary KRL)."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the revoked host keys in {path}: {error.strerror}",
            cause="RevokedHostKeys names it, so no host key can be accepted without it",
        ) from error
    if content.startswith(b"SSHKRL"):
        raise ConfigurationError(
            f"{path} is a binary revocation list (KRL), which edgectl cannot read",
            next_step="name a text file with one public key a line in RevokedHostKeys",
        )
    wanted = base64.b64encode(blob)
    for number, line in enumerate(content.splitlines(), start=1):
        if wanted in line.split():
            return f"{path}:{number}"
    return None
