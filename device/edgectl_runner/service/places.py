"""Files of the service below the root folder, and the state that the supervisor leaves there.

Written when something changes (start, redeploy, crash, stop), never while requests are served.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Places", "ServiceState", "read_state", "write_state"]


@dataclass(frozen=True, slots=True)
class Places:
    """Paths; ``next_config`` is one that has yet to prove itself."""

    root: Path

    @property
    def folder(self) -> Path:
        """Everything of the service."""
        return self.root / "service"

    @property
    def config(self) -> Path:
        """What worked last."""
        return self.folder / "config.json"

    @property
    def next_config(self) -> Path:
        """What is tried next."""
        return self.folder / "config.next.json"

    @property
    def state(self) -> Path:
        """`ServiceState`."""
        return self.folder / "state.json"

    @property
    def lock(self) -> Path:
        """Held by the supervisor."""
        return self.folder / "lock"

    @property
    def log(self) -> Path:
        """Standard error of a service that systemd does not run."""
        return self.folder / "log.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """``state`` is starting, ready, failed or stopped; ``attempt`` the newest configuration tried.

    ``error`` says why that one failed; with ``ready`` the one before it still serves.
    """

    pid: int
    state: str
    attempt: str
    address: str | None = None
    worker_pid: int | None = None
    restarts: int = 0
    error: dict[str, Any] | None = None


def write_state(places: Places, state: ServiceState) -> None:
    """Replaces the state; it need not survive a power cut, which ends the service as well."""
    temporary = places.state.with_name(f".tmp-state-{os.getpid()}")
    temporary.write_text(json.dumps(asdict(state)), encoding="utf-8")
    temporary.replace(places.state)


def read_state(places: Places) -> dict[str, Any] | None:
    """The newest state, ``None`` without one."""
    try:
        document: dict[str, Any] = json.loads(places.state.read_bytes())
    except (OSError, ValueError):
        return None
    return document
