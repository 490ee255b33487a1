"""What ``~/.ssh/config`` says about a host, in OpenSSH's way: the first value of a keyword wins.

Keywords that decide *whom to trust* are errors when they cannot be honoured.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from edgectl.errors import ConfigurationError
from edgectl.remote.ssh_config_reader import ConfigReader, expand_path
from edgectl.remote.ssh_options import SshOptions

__all__ = ["HostSettings", "host_settings"]

_DEFAULT_IDENTITIES = ("id_ed25519", "id_ecdsa", "id_rsa")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """Everything about one host that the configuration says, with OpenSSH's defaults.

    ``strict_host_key_checking`` is ``ask`` (refuse what is unknown), ``yes`` or ``accept-new``.
    ``default_identities`` tells that no identity file was configured, so that a missing or
    encrypted default key is no reason to complain.
    """

    alias: str
    hostname: str
    port: int
    user: str
    identity_files: tuple[Path, ...]
    default_identities: bool
    identities_only: bool
    agent_socket: str | None
    proxy_jump: tuple[str, ...]
    host_key_alias: str | None
    known_hosts_files: tuple[Path, ...]
    revoked_keys_file: Path | None
    strict_host_key_checking: str
    connect_timeout_s: float
    keepalive_s: float
    password_allowed: bool
    publickey_allowed: bool
    batch_mode: bool


def host_settings(alias: str, options: SshOptions, *, hop: bool = False) -> HostSettings:
    """What the user's and the system's configuration say about ``alias``.

    ``hop`` marks a jump host: options given on the command line are about the device, not it.

    Raises:
        ConfigurationError: a file cannot be read, a value makes no sense, or a keyword about
            trust cannot be honoured; the message names file and line.
    """
    reader = ConfigReader(alias=alias, options=options, user_given=None if hop else options.user)
    user_file = options.config_file or options.home / ".ssh" / "config"
    if options.config_file is not None and not user_file.is_file():
        raise ConfigurationError(
            f"the ssh configuration {user_file} does not exist",
            next_step="name another file, or none to use ~/.ssh/config",
        )
    reader.read(user_file, base=options.home / ".ssh")
    reader.read(options.system_config_file, base=Path("/etc/ssh"))
    return _Settled(reader, hop=hop).settings()


@dataclass(slots=True)
class _Settled:
    """Turns keywords into `HostSettings`: tokens expanded, types checked, defaults filled in."""

    reader: ConfigReader
    hop: bool

    def settings(self) -> HostSettings:
        options = self.reader.options
        self._refuse_what_cannot_be_honoured()
        hostname = self.reader.first("hostname", self.reader.alias)
        hostname = hostname.replace("%%", "\0").replace("%h", self.reader.alias).replace("\0", "%")
        given_port = None if self.hop else options.port
        port = given_port if given_port is not None else self._integer("port", 22)
        user = self.reader.user_given or self.reader.first("user", options.local_user)
        expand = _Tokens(self.reader, hostname=hostname, port=port, user=user)
        identities, default_identities = self._identity_files(expand)
        return HostSettings(
            alias=self.reader.alias,
            hostname=hostname,
            port=port,
            user=user,
            identity_files=identities,
            default_identities=default_identities,
            identities_only=self._yes("identitiesonly", default=False)
            or (options.identity_file is not None and not self.hop),
            agent_socket=self._agent_socket(expand),
            proxy_jump=self._proxy_jump(expand),
            host_key_alias=self.reader.values.get("hostkeyalias", [None])[0],
            known_hosts_files=self._known_hosts_files(expand),
            revoked_keys_file=self._revoked_keys_file(expand),
            strict_host_key_checking=self._strictness(),
            connect_timeout_s=float(
                self._integer("connecttimeout", 0) or options.connect_timeout_s
            ),
            keepalive_s=float(self._integer("serveraliveinterval", 0) or options.keepalive_s),
            password_allowed=self._method_allowed("passwordauthentication", "password"),
            publickey_allowed=self._method_allowed("pubkeyauthentication", "publickey"),
            batch_mode=self._yes("batchmode", default=False),
        )

    def _refuse_what_cannot_be_honoured(self) -> None:
        # As in OpenSSH, whichever of the two comes first in the files is the one that counts.
        order = [word for word in self.reader.values if word in ("proxyjump", "proxycommand")]
        command = self.reader.first("proxycommand", "none").lower()
        if order[:1] == ["proxycommand"] and command != "none":
            raise ConfigurationError(
                f"{self.reader.origin['proxycommand']}: ProxyCommand is not supported by edgectl",
                cause="edgectl runs no commands that a configuration file names",
                next_step=f"use ProxyJump for {self.reader.alias}, or open a tunnel with ssh -L and"
                " use its port",
            )
        if self.reader.first("knownhostscommand", "none").lower() != "none":
            raise ConfigurationError(
                f"{self.reader.origin['knownhostscommand']}: KnownHostsCommand is not supported by"
                " edgectl, and ignoring it would change whom you trust",
                next_step="list the keys in a file and name it with UserKnownHostsFile",
            )

    def _identity_files(self, expand: _Tokens) -> tuple[tuple[Path, ...], bool]:
        options = self.reader.options
        files: list[Path] = []
        if options.identity_file is not None and not self.hop:
            files.append(options.identity_file)
        files += [
            expand.path(text)
            for text in self.reader.values.get("identityfile", [])
            if text.lower() != "none"
        ]
        if files or "identityfile" in self.reader.values:
            return tuple(dict.fromkeys(files)), False
        return tuple(options.home / ".ssh" / name for name in _DEFAULT_IDENTITIES), True

    def _agent_socket(self, expand: _Tokens) -> str | None:
        text = self.reader.first("identityagent", "SSH_AUTH_SOCK")
        if text.lower() == "none":
            return None
        if text == "SSH_AUTH_SOCK":
            return self.reader.options.agent_socket
        if text.startswith("$"):
            self.reader.warn_once(
                f"{self.reader.origin['identityagent']}: IdentityAgent {text}: edgectl reads no"
                " variable but SSH_AUTH_SOCK; no agent is used"
            )
            return None
        return str(expand.path(text))

    def _proxy_jump(self, expand: _Tokens) -> tuple[str, ...]:
        text = self.reader.first("proxyjump", "none")
        # "ProxyCommand none" in front of it also means: connect directly.
        if (
            "proxycommand" in self.reader.values
            and next(word for word in self.reader.values if word in ("proxyjump", "proxycommand"))
            == "proxycommand"
        ):
            return ()
        if text.lower() == "none":
            return ()
        return tuple(part.strip() for part in expand.text(text).split(",") if part.strip())

    def _known_hosts_files(self, expand: _Tokens) -> tuple[Path, ...]:
        options = self.reader.options
        user = self.reader.values.get(
            "userknownhostsfile", ["~/.ssh/known_hosts", "~/.ssh/known_hosts2"]
        )
        everyone = self.reader.values.get(
            "globalknownhostsfile", ["/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"]
        )
        named = [text for text in (*user, *everyone) if text.lower() != "none"]
        files = [*(expand.path(text) for text in named), options.known_hosts_file]
        return tuple(dict.fromkeys(files))

    def _revoked_keys_file(self, expand: _Tokens) -> Path | None:
        text = self.reader.first("revokedhostkeys", "none")
        return None if text.lower() == "none" else expand.path(text)

    def _strictness(self) -> str:
        text = self.reader.first("stricthostkeychecking", "ask").lower()
        if text in ("no", "off", "false"):
            self.reader.warn_once(
                f"{self.reader.origin['stricthostkeychecking']}: StrictHostKeyChecking no is read"
                " as accept-new: edgectl never accepts a changed key"
            )
            return "accept-new"
        if text not in ("yes", "true", "ask", "accept-new"):
            raise ConfigurationError(
                f"{self.reader.origin['stricthostkeychecking']}: StrictHostKeyChecking {text} is"
                " not one of yes, ask, accept-new, no"
            )
        return "yes" if text == "true" else text

    def _method_allowed(self, switch: str, method: str) -> bool:
        preferred = self.reader.first("preferredauthentications", "").lower()
        listed = [part.strip() for part in preferred.split(",") if part.strip()]
        accepted = {method, "keyboard-interactive"} if method == "password" else {method}
        return self._yes(switch, default=True) and (not listed or bool(accepted & set(listed)))

    def _yes(self, keyword: str, *, default: bool) -> bool:
        text = self.reader.first(keyword, "yes" if default else "no").lower()
        return text not in ("no", "false", "off")

    def _integer(self, keyword: str, default: int) -> int:
        text = self.reader.first(keyword, str(default))
        if text.lower() == "none":
            return default
        if (
            not text.isascii()
            or not text.isdigit()
            or (keyword == "port" and not 0 < int(text) < 65536)
        ):
            raise ConfigurationError(
                f"{self.reader.origin[keyword]}: {keyword} {text!r} is not a number that makes"
                " sense there"
            )
        return int(text)


@dataclass(slots=True)
class _Tokens:
    """Replaces ``%h``, ``%p``, ``%r`` and their kind."""

    reader: ConfigReader
    hostname: str
    port: int
    user: str

    def text(self, value: str) -> str:
        options = self.reader.options
        local = socket.gethostname()
        known = {
            "%": "%",
            "d": str(options.home),
            "h": self.hostname,
            "i": "",
            "k": self.reader.first("hostkeyalias", self.reader.alias),
            "L": local.split(".")[0],
            "l": local,
            "n": self.reader.alias,
            "p": str(self.port),
            "r": self.user,
            "u": options.local_user,
        }
        result: list[str] = []
        characters = iter(value)
        for character in characters:
            if character != "%":
                result.append(character)
                continue
            token = next(characters, "")
            if token not in known:
                self.reader.warn_once(f"%{token} in {value!r} of the ssh configuration is unknown")
                result.append("%" + token)
                continue
            result.append(known[token])
        return "".join(result)

    def path(self, value: str) -> Path:
        options = self.reader.options
        return expand_path(self.text(value), options.home / ".ssh", options, keep_relative=True)
