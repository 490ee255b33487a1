"""Private key files: loading them, and saying exactly why one cannot be used."""

from __future__ import annotations

import base64
import binascii
import io
import subprocess
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from edgectl.errors import AuthenticationError
from edgectl.remote.ssh_options import SshOptions

__all__ = ["KeyFile", "ask_secret"]

_PASSPHRASE_TRIES = 3


class KeyFile:
    """One private key file; read when asked for, decrypted only then."""

    def __init__(self, path: Path):
        self.path = path

    def is_public(self) -> bool:
        """Whether it is a public key, which OpenSSH allows as a name for a key of the agent."""
        return _public_blob(self.path) is not None

    def public_blob(self) -> bytes | None:
        """The public half, from the file itself or from ``FILE.pub``, if there is one."""
        return _public_blob(self.path) or _public_blob(self.path.with_name(self.path.name + ".pub"))

    def load_plain(self) -> paramiko.PKey | None:
        """The key, or ``None`` when it is encrypted.

        Raises:
            AuthenticationError: it is not a key, or not of a kind that can be used.
        """
        return self._load(None)

    def load_encrypted(self, options: SshOptions) -> paramiko.PKey:
        """Asks for the passphrase, up to three times.

        Raises:
            AuthenticationError: nobody can be asked, or every passphrase was wrong.
        """
        previous: str | None = None
        tries = 0
        while tries < _PASSPHRASE_TRIES:
            passphrase = ask_secret(f"Passphrase for the key {self.path}: ", options)
            if passphrase is None or passphrase == previous:
                break  # a program that answers the same again would do so for ever
            tries += 1
            previous = passphrase
            try:
                key = self._load(passphrase.encode("utf-8"))
            except _WrongPassphraseError:
                continue
            if key is not None:
                return key
        if tries == 0 and options.ask is not None:
            raise AuthenticationError(
                f"the key {self.path} is encrypted, and no passphrase was given",
                next_step=f"run the command again, or use the agent: ssh-add {self.path}",
            )
        if tries == 0:
            raise AuthenticationError(
                f"the key {self.path} is encrypted, and there is nobody to ask for its passphrase",
                cause="edgectl does not run in a terminal, and SSH_ASKPASS names no program",
                next_step=f"add the key to the agent first: ssh-add {self.path}",
            )
        raise AuthenticationError(
            f"wrong passphrase for the key {self.path} ({tries} tried)",
            next_step=f"check it with: ssh-keygen -y -f {self.path}",
        )

    def _load(self, passphrase: bytes | None) -> paramiko.PKey | None:
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise AuthenticationError(
                f"cannot read the key {self.path}: {error.strerror}",
                next_step="check the path and its permissions: ls -l " + str(self.path),
            ) from error
        read = (
            serialization.load_ssh_private_key
            if b"OPENSSH PRIVATE KEY" in content
            else serialization.load_pem_private_key
        )
        try:
            key = read(content, passphrase)
        except TypeError:
            # "Password was not given but private key is encrypted", in either format.
            return None
        except (UnsupportedAlgorithm, ValueError) as error:
            if passphrase is not None and isinstance(error, ValueError):
                raise _WrongPassphraseError from error
            raise self._unusable(str(error)) from error
        if isinstance(key, ed25519.Ed25519PrivateKey):
            kind: type[paramiko.PKey] = paramiko.Ed25519Key
        elif isinstance(key, ec.EllipticCurvePrivateKey):
            kind = paramiko.ECDSAKey
        elif isinstance(key, rsa.RSAPrivateKey):
            kind = paramiko.RSAKey
        else:
            raise self._unusable(f"it is a {type(key).__name__}")
        # paramiko reads fewer file formats than cryptography, so it gets the one it surely reads.
        plain = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        return kind.from_private_key(io.StringIO(plain.decode("ascii")))

    def _unusable(self, why: str) -> AuthenticationError:
        return AuthenticationError(
            f"{self.path} is not a private key that edgectl can use: {why}",
            cause="keys are ED25519, ECDSA or RSA, in OpenSSH's or PEM format; security keys"
            " (-sk) work through the agent only",
            next_step="make one with: ssh-keygen -t ed25519",
        )


def _public_blob(path: Path) -> bytes | None:
    try:
        words = path.read_text("utf-8").split()
        if not words[0].startswith(("ssh-", "ecdsa-", "sk-")):
            return None
        return base64.b64decode(words[1], validate=True)
    except (OSError, ValueError, IndexError, binascii.Error):
        return None


class _WrongPassphraseError(Exception):
    """The passphrase does not open the key."""


def ask_secret(prompt: str, options: SshOptions) -> str | None:
    """Asks the user, or the program that SSH_ASKPASS names; ``None`` without an answer."""
    if options.ask is not None:
        return options.ask(prompt)
    if not options.askpass:
        return None
    try:
        answer = subprocess.run(
            [options.askpass, prompt], capture_output=True, check=False, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        options.warn(f"SSH_ASKPASS ({options.askpass}) cannot be run: {error}")
        return None
    if answer.returncode != 0:
        return None
    return answer.stdout.decode("utf-8", "replace").rstrip("\r\n")
