"""Reads OpenSSH client configuration files line by line, for one host.

paramiko's reader knows no ``Include`` and raises on ``Match exec``; this one opens included files
where they stand and says through ``warn`` what it does not support.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from edgectl.errors import ConfigurationError
from edgectl.remote.ssh_options import SshOptions

__all__ = ["ConfigReader", "expand_path"]

_LINE = re.compile(r"(?P<keyword>\w+)(?:\s*=\s*|\s+|$)(?P<rest>.*)")
_MAX_INCLUDE_DEPTH = 16  # OpenSSH's own limit

_LISTS = frozenset({"identityfile"})
_USED = _LISTS | {
    "hostname", "user", "port", "identitiesonly", "proxyjump", "userknownhostsfile",
    "globalknownhostsfile", "hostkeyalias", "stricthostkeychecking", "identityagent",
    "connecttimeout", "serveraliveinterval", "revokedhostkeys", "passwordauthentication",
    "pubkeyauthentication", "preferredauthentications", "proxycommand", "knownhostscommand",
    "batchmode",
}  # fmt: skip
# Understood by OpenSSH, of no consequence for what edgectl does over a connection.
_HARMLESS = frozenset({
    "addkeystoagent", "canonicaldomains", "canonicalizefallbacklocal",
    "canonicalizemaxdots", "canonicalizepermittedcnames", "checkhostip", "clearallforwardings",
    "compression", "controlmaster", "controlpath", "controlpersist", "dynamicforward",
    "enableescapecommandline", "escapechar", "exitonforwardfailure", "fingerprinthash",
    "forkafterauthentication", "forwardagent", "forwardx11", "forwardx11timeout",
    "forwardx11trusted", "gatewayports", "gssapiauthentication", "gssapidelegatecredentials",
    "hashknownhosts", "hostbasedauthentication", "ignoreunknown", "ipqos", "localcommand",
    "localforward", "loglevel", "logverbose", "nohostauthenticationforlocalhost",
    "obscurekeystroketiming", "permitlocalcommand", "permitremoteopen", "rekeylimit",
    "remotecommand", "remoteforward", "requesttty", "sendenv", "sessiontype", "setenv",
    "stdinnull", "streamlocalbindmask", "streamlocalbindunlink", "syslogfacility", "tag",
    "tcpkeepalive", "tunnel", "tunneldevice", "updatehostkeys", "usekeychain", "verifyhostkeydns",
    "visualhostkey", "xauthlocation", "channeltimeout", "kbdinteractiveauthentication",
    "numberofpasswordprompts", "serveralivecountmax",
})  # fmt: skip


@dataclass(slots=True)
class ConfigReader:
    """Evaluates the files in order; ``values`` maps each keyword to its first value."""

    alias: str
    options: SshOptions
    user_given: str | None
    values: dict[str, list[str]] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    _said: set[str] = field(default_factory=set)

    def read(self, path: Path, *, base: Path, depth: int = 0) -> None:
        """Takes in one file, if it is there; ``base`` is what ``Include`` is relative to."""
        if depth > _MAX_INCLUDE_DEPTH:
            raise ConfigurationError(
                f"{path}: Include goes more than {_MAX_INCLUDE_DEPTH} files deep",
                cause="two files probably include each other",
            )
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise ConfigurationError(
                f"cannot read the ssh configuration {path}: {error.strerror}",
                next_step=f"check its permissions: ls -l {path}",
            ) from error
        active = True
        for number, line in enumerate(lines, start=1):
            where = f"{path}:{number}"
            keyword, words = self._split(line, where)
            if not keyword:
                continue
            if keyword == "host":
                active = _matches_patterns(words, self.alias)
            elif keyword == "match":
                active = self._match(words, where)
            elif active and keyword == "include":
                for name in words:
                    for found in _files_matching(expand_path(name, base, self.options)):
                        self.read(found, base=base, depth=depth + 1)
            elif active:
                self._set(keyword, words, where)

    def _split(self, line: str, where: str) -> tuple[str, list[str]]:
        text = line.strip()
        if not text or text.startswith("#"):
            return "", []
        found = _LINE.match(text)
        if found is None or "\0" in text:
            raise ConfigurationError(f"{where}: cannot read {text!r}")
        try:
            words = shlex.split(found["rest"], comments=True)
        except ValueError as error:
            raise ConfigurationError(
                f"{where}: {error}", next_step=f"close the quotes in {where}"
            ) from error
        return found["keyword"].lower(), words

    def _set(self, keyword: str, words: list[str], where: str) -> None:
        if keyword not in _USED:
            if keyword not in _HARMLESS:
                self.warn_once(f"{where}: {keyword} is not supported by edgectl and was ignored")
            return
        if not words:
            raise ConfigurationError(f"{where}: {keyword} has no value")
        if keyword in _LISTS:
            self.values.setdefault(keyword, []).extend(words[:1])
        elif keyword not in self.values:
            self.values[keyword] = words
            self.origin[keyword] = where

    def _match(self, words: list[str], where: str) -> bool:
        """All criteria of the line must hold; one that is not supported does not hold."""
        rest = list(words)
        result = bool(rest)
        while rest:
            criterion = rest.pop(0).lower()
            negated = criterion.startswith("!")
            criterion = criterion.removeprefix("!")
            if criterion == "all":
                holds = True
            elif criterion in ("canonical", "final"):
                holds = False  # the second pass that these ask for is not made
                self.warn_once(f"{where}: 'Match {criterion}' is not supported by edgectl; skipped")
            else:
                argument, rest = (rest[0], rest[1:]) if rest else ("", rest)
                test = self._tests().get(criterion)
                if test is None:
                    # Running a command that a file names is a decision for OpenSSH, not for us;
                    # neither the criterion nor its negation may hold.
                    self.warn_once(
                        f"{where}: 'Match {criterion}' is not supported by edgectl;"
                        " the block was skipped"
                    )
                    return False
                holds = _matches_patterns(argument.split(","), test())
            result = result and holds is not negated
        return result

    def _tests(self) -> dict[str, Callable[[], str]]:
        local = self.options.local_user
        return {
            "host": lambda: self.first("hostname", self.alias).replace("%h", self.alias),
            "originalhost": lambda: self.alias,
            "user": lambda: self.user_given or self.first("user", local),
            "localuser": lambda: local,
        }

    def first(self, keyword: str, default: str) -> str:
        """The first word of the keyword's value."""
        found = self.values.get(keyword)
        return found[0] if found else default

    def warn_once(self, line: str) -> None:
        """Says something that does not stop the connection."""
        if line not in self._said:
            self._said.add(line)
            self.options.warn(line)


def expand_path(name: str, base: Path, options: SshOptions, *, keep_relative: bool = False) -> Path:
    """Home folders filled in; ``keep_relative`` leaves other relative names as they are."""
    if name == "~" or name.startswith("~/"):
        return options.home / name[2:]
    if name.startswith("~"):
        # pathlib raises for a user that does not exist; here the name stays as it is.
        return Path(os.path.expanduser(name))  # noqa: PTH111
    # Include is relative to ~/.ssh (or /etc/ssh); file names elsewhere to the working directory.
    return Path(name) if keep_relative or Path(name).is_absolute() else base / name


def _matches_patterns(patterns: list[str], text: str) -> bool:
    """OpenSSH's pattern list: one must match and no negated one may."""
    matched = False
    for pattern in patterns:
        wanted = pattern.removeprefix("!")
        # Square brackets are plain characters in OpenSSH, a set in fnmatch.
        if fnmatch.fnmatchcase(text.lower(), wanted.lower().replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


def _files_matching(pattern: Path) -> list[Path]:
    # Path.glob wants the root apart and has no use for a pattern without wildcards.
    return sorted(Path(found) for found in glob.glob(str(pattern)))  # noqa: PTH207
