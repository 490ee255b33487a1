"""What the host can ask of the service: start, status, stop and logs, documents in and out."""

from __future__ import annotations

import dataclasses
import json
import os
import time
import uuid
from collections.abc import Callable
from typing import Any

from edgectl_runner.contract import to_document
from edgectl_runner.durable import make_directories, write_durably
from edgectl_runner.failures import DEVICE, USAGE, RunnerError
from edgectl_runner.requests import Document, who_of
from edgectl_runner.service import launch
from edgectl_runner.service.places import Places, read_state
from edgectl_runner.service.settings import LOOPBACK, ServiceConfig, check_config, read_config
from edgectl_runner.store import Store

__all__ = ["VERBS"]

POLL_S = 0.05
START_GRACE_S = 20.0


def start(store: Store, request: Document) -> Document:
    """Starts the service with a configuration, or swaps a running one to it.

    The answer comes when it serves, or does not. A configuration that does not come up is an
    error, and what served before still does.
    """
    places = Places(store.root)
    config = _prepared(store, check_config(request.get("config")))
    manager = launch.find_manager(use_systemd=request.get("systemd", True) is not False)
    who = who_of(request)
    make_directories(places.folder)
    with store.changing(who=who, verb="serve"):
        before = _current_config(places)
        config = _pin(store, config, before)
        for model in config.models:
            store.audit.append("serve", release=model.release, who=who, model=model.name)
        write_durably(places.next_config, json.dumps(to_document(config)).encode(), mode=0o600)
        launch.start(
            places,
            manager,
            reachable=config.host not in LOOPBACK,
            memory_max_bytes=request.get("memory_max_bytes"),
        )
    state = _wait(places, manager, config.attempt, float(request.get("timeout_s", 300.0)))
    if state["error"] is not None:
        error = state["error"]
        raise RunnerError(
            error["message"],
            code=error["code"],
            cause=error.get("cause"),
            next_step=error.get("next_step"),
        )
    return status(store, {})


def status(store: Store, request: Document) -> Document:  # noqa: ARG001
    """Whether the service runs, where, and what it serves."""
    places = Places(store.root)
    pid = launch.running_pid(places)
    state = read_state(places) if pid is not None else None
    config = _current_config(places)
    return {
        "running": pid is not None,
        "state": state["state"] if state is not None else "stopped",
        "address": state["address"] if state is not None else None,
        "pid": pid,
        "worker_pid": state["worker_pid"] if state is not None else None,
        "restarts": state["restarts"] if state is not None else 0,
        "last_error": state["error"] if state is not None else None,
        "manager": launch.find_manager(use_systemd=True),
        "token_required": config is not None and config.token_sha256 is not None,
        "models": [] if config is None else [dataclasses.asdict(m) for m in config.models],
    }


def stop(store: Store, request: Document) -> Document:
    """Ends the service; it does not start at boot any more."""
    places = Places(store.root)
    make_directories(places.folder)
    ran = launch.stop(places, launch.find_manager(use_systemd=True))
    config = _current_config(places)
    if config is not None:
        with store.changing(who=who_of(request), verb="serve"):
            for release in config.pinned:
                store.pin(release, pinned=False)
    places.config.unlink(missing_ok=True)
    places.next_config.unlink(missing_ok=True)
    return {"stopped": ran}


def logs(store: Store, request: Document) -> Document:
    """The newest lines of the service's log."""
    last = request.get("last", 100)
    if type(last) is not int or not 1 <= last <= 10000:
        raise RunnerError("'last' must be a number from 1 to 10000", code=USAGE)
    manager = launch.find_manager(use_systemd=True)
    return {"lines": launch.logs(Places(store.root), manager, last)}


VERBS: dict[str, Callable[[Store, Document], Document]] = {
    "start": start,
    "status": status,
    "stop": stop,
    "logs": logs,
}


def _prepared(store: Store, config: ServiceConfig) -> ServiceConfig:
    for model in config.models:
        store.manifest(model.release)  # an error here names what is installed
    return dataclasses.replace(
        config, python_path=os.environ.get("PYTHONPATH", ""), attempt=uuid.uuid4().hex
    )


def _pin(store: Store, config: ServiceConfig, before: ServiceConfig | None) -> ServiceConfig:
    """Protects what is served from collection, and lets go of what no longer is.

    Until the new one serves, the old one must stay as well, so letting go waits for the next
    start; a pin of the user's own is never touched.
    """
    ours = set(before.pinned if before is not None else ())
    still = set() if before is None else {m.release for m in before.models}
    for release in ours - still - {m.release for m in config.models}:
        if release in store.release_ids():
            store.pin(release, pinned=False)
    mine = {m.release for m in config.models if m.release not in store.pinned()}
    for release in mine:
        store.pin(release, pinned=True)
    kept = {r for r in ours if r in store.pinned()}
    return dataclasses.replace(config, pinned=tuple(sorted(mine | kept)))


def _current_config(places: Places) -> ServiceConfig | None:
    try:
        return read_config(places.config)
    except RunnerError:
        return None


def _wait(
    places: Places, manager: launch.Manager, attempt: str, timeout_s: float
) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s
    grace = time.monotonic() + START_GRACE_S
    while time.monotonic() < deadline:
        state = read_state(places)
        if state is not None and state["attempt"] == attempt and state["state"] != "starting":
            return state
        if launch.running_pid(places) is None and time.monotonic() > grace:
            lines = " | ".join(launch.logs(places, manager, 3))
            raise RunnerError(
                f"the service ended while it started: {lines or 'it said nothing'}",
                next_step="edgectl serve logs",
            )
        time.sleep(POLL_S)
    raise RunnerError(
        f"the service was not ready within {timeout_s:.0f} s",
        code=DEVICE,
        cause="the model is very large, or the board very busy",
        next_step="edgectl serve logs",
    )
