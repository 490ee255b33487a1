"""The systemd unit of the service: started at boot, watched, and shut off from the board.

``MemoryDenyWriteExecute`` is left out: IREE's loader maps the module's code writable first and
executable then, and refuses to load with it. ``ProcSubset=pid`` is left out because the service
reads the board's memory and load from ``/proc``. In a user's own manager only those settings are
written that need no privileges there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgectl_runner.failures import CONFIGURATION, RunnerError

__all__ = ["UnitOptions", "render_unit"]

PRIVATE_NETWORKS = (
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"),
    *("fc00::/7", "fe80::/10"),
)
_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOptions:
    """``user_name`` of ``None``: a unit of the user's own manager."""

    root: Path
    command: tuple[str, ...]
    environment: Mapping[str, str]
    user_name: str | None
    memory_max_bytes: int | None = None
    reachable: bool = False


def render_unit(options: UnitOptions) -> str:
    """The unit file's text.

    Raises:
        RunnerError: a path or value cannot be written into a unit safely.
    """
    lines = [
        "[Unit]",
        "Description=edgectl inference service",
        "After=network.target",
        "StartLimitIntervalSec=300",
        "StartLimitBurst=5",
        "",
        "[Service]",
        "Type=notify",
        "NotifyAccess=main",
        f"ExecStart={_words(options.command)}",
        "ExecReload=/bin/kill -HUP $MAINPID",
        *(f"Environment={_word(f'{k}={v}')}" for k, v in sorted(options.environment.items())),
        "Restart=on-failure",
        "RestartSec=2",
        "TimeoutStartSec=900",
        "TimeoutStopSec=40",
        "WatchdogSec=15",
        "OOMPolicy=continue",
        *([f"MemoryMax={options.memory_max_bytes}"] if options.memory_max_bytes else []),
        "TasksMax=64",
        "SyslogIdentifier=edgectl",
        *_hardening(options),
        "",
        "[Install]",
        f"WantedBy={'default' if options.user_name is None else 'multi-user'}.target",
        "",
    ]
    return "\n".join(lines)


def _hardening(options: UnitOptions) -> list[str]:
    anyone = [
        "NoNewPrivileges=yes",
        "LockPersonality=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "SystemCallArchitectures=native",
        "SystemCallFilter=@system-service",
        "SystemCallFilter=~@privileged",
        "SystemCallErrorNumber=EPERM",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
        "UMask=0077",
    ]
    if options.user_name is None:
        return anyone
    network = ["IPAddressDeny=any", "IPAddressAllow=localhost"]
    if options.reachable:
        network.append(f"IPAddressAllow={' '.join(PRIVATE_NETWORKS)}")
    return [
        f"User={_word(options.user_name)}",
        *anyone,
        "CapabilityBoundingSet=",
        "AmbientCapabilities=",
        "RestrictNamespaces=yes",
        "ProtectSystem=strict",
        f"ReadWritePaths={_word(str(options.root / 'service'))}",
        "ProtectHome=read-only",
        "PrivateTmp=yes",
        "PrivateDevices=yes",
        "DevicePolicy=closed",
        "PrivateUsers=yes",
        "ProtectHostname=yes",
        "ProtectClock=yes",
        "ProtectKernelTunables=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelLogs=yes",
        "ProtectControlGroups=yes",
        "ProtectProc=invisible",
        "RemoveIPC=yes",
        "KeyringMode=private",
        *network,
    ]


def _words(words: Sequence[str]) -> str:
    return " ".join(_word(word) for word in words)


def _word(text: str) -> str:
    if not _SAFE.match(text):
        raise RunnerError(
            f"{text[:80]!r} cannot be written into a systemd unit",
            code=CONFIGURATION,
            cause="the path of the root folder or of Python holds a space or a special character",
            next_step="set EDGECTL_ROOT to a plain path",
        )
    return text.replace("%", "%%")
