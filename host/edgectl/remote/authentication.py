"""Logging in: agent, key files, encrypted key files, and a password last.

Keys that need no question are offered first, so that a passphrase is asked for only when nothing
else opened the door. At most five keys are offered: servers hang up after six failures.
"""

from __future__ import annotations

import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import paramiko
from paramiko import SSHException
from paramiko.agent import AgentSSH

from edgectl.errors import AuthenticationError, ConnectionFailedError
from edgectl.remote.key_files import KeyFile, ask_secret
from edgectl.remote.known_hosts import fingerprint
from edgectl.remote.ssh_config import HostSettings
from edgectl.remote.ssh_options import SshOptions
from edgectl.remote.transport import StrictTransport

__all__ = ["authenticate"]

_MAX_KEYS = 5
_PASSWORD_TRIES = 3
_TYPING_S = 300.0


def authenticate(
    transport: StrictTransport, settings: HostSettings, options: SshOptions, *, label: str
) -> None:
    """Logs in as ``settings.user``.

    Raises:
        AuthenticationError: nothing was accepted; lists what was tried and why it failed.
        ConnectionFailedError: the connection broke meanwhile.
    """
    _Login(transport=transport, settings=settings, options=options, label=label).run()


@dataclass(slots=True)
class _Login:
    transport: StrictTransport
    settings: HostSettings
    options: SshOptions
    label: str
    allowed: set[str] = field(default_factory=set)
    tried: list[str] = field(default_factory=list)
    trouble: list[AuthenticationError] = field(default_factory=list)
    offered: set[bytes] = field(default_factory=set)

    def run(self) -> None:
        if self._ask_methods():
            return
        if "publickey" in self.allowed and self.settings.publickey_allowed and self._try_keys():
            return
        if self.settings.password_allowed and self._try_passwords():
            return
        raise self._refused()

    def _ask_methods(self) -> bool:
        """Asks with the method "none" which methods there are; true when that let us in."""
        try:
            self._attempt(lambda: self.transport.auth_none(self.settings.user))
        except paramiko.BadAuthenticationType as error:
            self.allowed = set(error.allowed_types)
        except paramiko.AuthenticationException:
            self.allowed = {"publickey", "password", "keyboard-interactive"}
        return self.transport.is_authenticated()

    def _try_keys(self) -> bool:
        agent = _agent(self.settings.agent_socket, self.options)
        try:
            for name, key in self._keys(agent):
                blob = key.asbytes()
                if blob in self.offered:
                    continue
                if len(self.offered) >= _MAX_KEYS:
                    self.tried.append(f"no more than {_MAX_KEYS} keys")
                    break
                self.offered.add(blob)
                if self._offer(name, key):
                    return True
                if "publickey" not in self.allowed:
                    break  # accepted, and the server wants something else on top
        finally:
            if agent is not None:
                agent.close()
        return False

    def _offer(self, name: str, key: paramiko.PKey) -> bool:
        try:
            further = self._attempt(lambda: self.transport.auth_publickey(self.settings.user, key))
        except paramiko.BadAuthenticationType as error:
            self.allowed = set(error.allowed_types)
            self.tried.append(f"{name}: refused")
        except paramiko.AuthenticationException:
            self.tried.append(f"{name} ({fingerprint(key.asbytes())}): refused")
        except SSHException as error:
            self.tried.append(f"{name}: {error}")  # the agent declined, or no common algorithm
        else:
            if further:
                self.allowed = set(further)
                self.tried.append(f"{name}: accepted, but the device wants more")
        return self.transport.is_authenticated()

    def _keys(self, agent: AgentSSH | None) -> Iterator[tuple[str, paramiko.PKey]]:
        files = [KeyFile(path) for path in self.settings.identity_files]
        if self.settings.default_identities:
            files = [file for file in files if file.path.exists()]
        configured = {blob for file in files if (blob := file.public_blob()) is not None}
        held = list(agent.get_keys()) if agent is not None else []
        wanted = [key for key in held if key.asbytes() in configured]
        others = [] if self.settings.identities_only else [k for k in held if k not in wanted]
        yield from ((f"agent key {key.comment or key.get_name()}", key) for key in wanted)
        unasked = ((f"agent key {key.comment or key.get_name()}", key) for key in others)
        if self.settings.default_identities:
            yield from unasked
        encrypted: list[KeyFile] = []
        for file in files:
            if file.is_public():
                continue  # names a key of the agent, which has been offered
            try:
                _warn_if_exposed(file, self.options)
                key = file.load_plain()
            except AuthenticationError as error:
                self.trouble.append(error)
                continue
            if key is None:
                encrypted.append(file)
            else:
                yield f"key {file.path}", key
        if not self.settings.default_identities:
            # Unlike in OpenSSH, keys that were configured come before those that merely are in
            # the agent: servers hang up before all of a full agent has been tried.
            yield from unasked
        for file in encrypted:
            if file.public_blob() in self.offered:
                continue  # the agent had it already
            try:
                yield f"key {file.path}", file.load_encrypted(self.options)
            except AuthenticationError as error:
                self.trouble.append(error)

    def _try_passwords(self) -> bool:
        if self.settings.batch_mode or not self.allowed & {"password", "keyboard-interactive"}:
            return False
        previous: str | None = None
        for _ in range(_PASSWORD_TRIES):
            password = ask_secret(f"Password of {self.label}: ", self.options)
            if password is None or password == previous:
                break
            previous = password
            try:
                self._attempt(lambda answer=password: self._send_password(answer))  # type: ignore[misc]
            except paramiko.BadAuthenticationType as error:
                self.allowed = set(error.allowed_types)
                self.tried.append("password: refused")
                break
            except paramiko.AuthenticationException:
                self.tried.append("password: wrong")
            if self.transport.is_authenticated():
                return True
        return False

    def _send_password(self, password: str) -> list[str]:
        user = self.settings.user
        if "password" in self.allowed:
            return self.transport.auth_password(user, password, fallback=False)
        unused = [password]

        def answer(_title: str, _text: str, questions: list[tuple[str, bool]]) -> list[str]:
            # The first hidden question is the password; anything else (a one-time code) is asked.
            return [
                unused.pop() if unused and not echo else ask_secret(question, self.options) or ""
                for question, echo in questions
            ]

        self.transport.auth_timeout = _TYPING_S
        return self.transport.auth_interactive(user, answer)

    def _attempt(self, action: Callable[[], Sequence[str] | None]) -> list[str]:
        """Runs one attempt; a connection that broke is told apart from a refusal."""
        try:
            return list(action() or ())
        except (SSHException, EOFError, OSError) as error:
            if str(error) == "Authentication timeout.":
                raise ConnectionFailedError(
                    f"{self.label} did not answer for {self.transport.auth_timeout:g} s while"
                    " logging in",
                    cause="the connection broke, or the device is overloaded",
                    next_step="try again; if the device is slow, with --ssh-timeout 60",
                ) from error
            if self.transport.is_active() or isinstance(error, paramiko.BadAuthenticationType):
                raise
            attempts = max(len(self.tried), len(self.offered))
            if attempts and not isinstance(error, OSError):  # an OSError is the network's
                raise AuthenticationError(
                    f"{self.label} hung up after {attempts} attempts to log in",
                    cause="servers allow only so many failures (MaxAuthTries): "
                    + ("; ".join(self.tried) or "none was refused before"),
                    next_step="name the one right key: IdentityFile and IdentitiesOnly yes in"
                    " ~/.ssh/config",
                ) from error
            raise ConnectionFailedError(
                f"the connection to {self.label} broke while logging in",
                cause=str(error) or "the device hung up",
                next_step="try again; on the device: journalctl -u ssh",
            ) from error

    def _refused(self) -> AuthenticationError:
        if self.trouble and not self.settings.default_identities and not self.tried:
            return self.trouble[0]  # the one key that was asked for is the whole story
        tried = "; ".join([*self.tried, *(error.message for error in self.trouble)])
        user = self.settings.user
        host, port = self.settings.hostname, self.settings.port
        return AuthenticationError(
            f"{self.label} let nobody in as {user}: {tried or 'there was no key to try'}",
            cause=f"the device accepts {', '.join(sorted(self.allowed)) or 'no method'}, and it"
            " does not know these keys"
            if tried
            else "no key, no agent and no password",
            next_step=f"give it your key: ssh-copy-id -p {port} {user}@{host}",
        )


class _Agent(AgentSSH):
    """An agent at a socket of our choice (paramiko's own reads the environment)."""

    def __init__(self, path: str):
        super().__init__()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_TYPING_S)  # a security key may wait for a touch
        try:
            connection.connect(path)
            self._connect(connection)  # type: ignore[attr-defined]
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Ends the connection to the agent."""
        self._close()  # type: ignore[attr-defined]


def _agent(path: str | None, options: SshOptions) -> _Agent | None:
    if not path:
        return None
    try:
        return _Agent(path)
    except (OSError, SSHException) as error:
        options.warn(f"the SSH agent at {path} does not answer: {error}")
        return None


def _warn_if_exposed(file: KeyFile, options: SshOptions) -> None:
    try:
        mode = file.path.stat().st_mode
    except OSError:
        return
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        options.warn(f"others can read the key {file.path}; protect it: chmod 600 {file.path}")
