"""A new release is on probation until it has given the right numbers on this very device.

``probation.json`` is written before the switch and removed after the verdict. Whoever finds it
later (the agent died, the power went) goes back to what was current before: an unproven release
never outlives its probation, and there is nothing to loop over.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgectl_runner.durable import fsync_directory, write_durably
from edgectl_runner.failures import MISMATCH, USAGE, RunnerError
from edgectl_runner.isolation import run_isolated

if TYPE_CHECKING:
    from edgectl_runner.store import Store

__all__ = ["HealthCheck", "activate", "on_probation", "settle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """What a release must do to stay: right golden outputs, in time, for a while.

    ``timeout_s`` bounds each step (loading, one golden call), not the whole. ``max_latency_ms``
    bounds the median of a few calls; ``window_s`` is how long it is called again and again (0:
    just the golden calls).
    """

    timeout_s: float = 30.0
    window_s: float = 0.0
    max_latency_ms: float | None = None

    @classmethod
    def from_document(cls, document: Any) -> HealthCheck | None:
        """From a request; ``None`` and ``false`` mean no check.

        Raises:
            RunnerError: exit code 2.
        """
        if document is None or document is False:
            return None
        if document is True:
            return cls()
        names = {"timeout_s", "window_s", "max_latency_ms"}
        if not isinstance(document, dict) or not set(document) <= names:
            raise RunnerError("'health' is not a health check", code=USAGE)
        values = {k: v for k, v in document.items() if v is not None}
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise RunnerError(f"health.{name} is not a number of 0 or more", code=USAGE)
        return cls(**values)


def activate(store: Store, release: str, *, who: str, health: HealthCheck | None) -> dict[str, Any]:
    """Switches to a release and, with a health check, back again if it is not healthy.

    Returns ``healthy`` (``None``: not looked at) and ``reason``. Inside the lock.
    """
    if health is None or store.links.current() == release:
        store.switch(release, who=who, event="install")
        return {"healthy": None, "reason": None, "code": None}
    note = {
        "release": release,
        "current": store.links.current(),
        "previous": store.links.previous(),
    }
    write_durably(_path(store), json.dumps(note).encode())
    try:
        store.switch(release, who=who, event="install")
        _check(store, release, health)
    except RunnerError as error:
        _go_back(store, note, who=who, reason=error.message)
        return {"healthy": False, "reason": error.message, "code": error.code}
    except BaseException:
        _go_back(store, note, who=who, reason="the check was interrupted")
        raise
    _drop(store)
    store.note("healthy", release=release, who=who)
    return {"healthy": True, "reason": None, "code": None}


def settle(store: Store, *, who: str) -> str | None:
    """Ends a probation whose agent died: back to what was current before (inside the lock).

    Returns the release that was given up, if one was.
    """
    try:
        note = json.loads(_path(store).read_bytes())
        release = note["release"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        _drop(store)  # written durably, so this is a failing card; `current` is complete anyway
        return None
    if store.links.current() != release:
        _drop(store)  # it died before the switch, or after going back
        return None
    _go_back(store, note, who=who, reason="the device stopped during its probation")
    return str(release)


def on_probation(store: Store) -> str | None:
    """The release that is being tried now, if any."""
    try:
        return str(json.loads(_path(store).read_bytes())["release"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _check(store: Store, release: str, health: HealthCheck) -> None:
    read, folder = store.startable(release)

    def in_child(beat: Callable[[], None]) -> dict[str, Any]:
        from edgectl_runner.execution import check_health

        return check_health(
            read.manifest,
            folder,
            window_s=health.window_s,
            max_latency_ms=health.max_latency_ms,
            beat=beat,
        )

    verdict = run_isolated(
        in_child,
        features=read.manifest.cpu_features,
        processor=read.manifest.cpu,
        silence_s=health.timeout_s,
        # The host may vanish; the verdict is the device's own.
        watch_stdout=False,
    )
    if verdict["reason"] is not None:
        raise RunnerError(verdict["reason"], code=MISMATCH)


def _go_back(store: Store, note: dict[str, Any], *, who: str, reason: str) -> None:
    installed = store.release_ids()
    current, previous = (
        name if name in installed else None for name in (note.get("current"), note.get("previous"))
    )
    store.note(
        "auto-rollback", release=current, who=who, given_up=note.get("release"), reason=reason
    )
    store.links.change(current=current, previous=previous)
    _drop(store)


def _path(store: Store) -> Path:
    return store.root / "probation.json"


def _drop(store: Store) -> None:
    _path(store).unlink(missing_ok=True)
    fsync_directory(store.root)
