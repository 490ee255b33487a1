"""Starts, describes and ends the service on a device.

pushed = push_bundle(device, handle, bundle)
model = ModelToServe(name="cat", release=pushed.release)
status = start_service(device, handle, ServiceOptions(models=(model,)))
print(status.address)
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgectl.errors import DeviceError
from edgectl.remote.agent_calls import RunnerHandle, read_answer
from edgectl.remote.base import Device
from edgectl.remote.releases import local_user

__all__ = [
    "ModelToServe",
    "ServiceOptions",
    "ServiceStatus",
    "new_token",
    "service_logs",
    "service_status",
    "start_service",
    "stop_service",
]

START_TIMEOUT_S = 300.0
EMULATED_START_TIMEOUT_S = 1800.0
CALL_TIMEOUT_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelToServe:
    """An installed release and how clients name it."""

    name: str
    release: str
    version: str = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """How the service runs; ``limits`` are those of `edgectl_runner.service.settings.Limits`.

    ``token`` is needed on any host but the loopback; the device keeps only its digest.
    ``tls_certificate`` and ``tls_key`` are paths on the device.
    """

    models: tuple[ModelToServe, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    contexts: int = 1
    threads: int | None = None
    limits: Mapping[str, float | int] = field(default_factory=dict)
    memory_max_bytes: int | None = None
    systemd: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """What the device says about its service.

    ``state`` is starting, ready, failed or stopped. ``manager`` is user-unit, system-unit or
    process; a process does not survive a reboot. ``last_error`` is what went wrong last.
    """

    running: bool
    state: str
    address: str | None
    pid: int | None
    worker_pid: int | None
    restarts: int
    last_error: Mapping[str, Any] | None
    manager: str
    token_required: bool
    models: tuple[ModelToServe, ...]


def new_token() -> str:
    """A token that cannot be guessed (256 bits)."""
    return secrets.token_urlsafe(32)


def start_service(device: Device, handle: RunnerHandle, options: ServiceOptions) -> ServiceStatus:
    """Starts the service, or swaps a running one without losing a request.

    Raises:
        DeviceError: it did not come up; what was served before still is.
        ConfigurationError: it would be open to the network without a token.
    """
    token = options.token
    config = {
        "schema_version": 1,
        "host": options.host,
        "port": options.port,
        "token_sha256": None if token is None else hashlib.sha256(token.encode()).hexdigest(),
        "tls_certificate": options.tls_certificate,
        "tls_key": options.tls_key,
        "models": [
            {"name": m.name, "version": m.version, "release": m.release} for m in options.models
        ],
        "contexts": options.contexts,
        "threads": options.threads,
        "limits": dict(options.limits),
    }
    timeout_s = EMULATED_START_TIMEOUT_S if device.emulated else START_TIMEOUT_S
    request = {
        "config": config,
        "who": local_user(),
        "systemd": options.systemd,
        "memory_max_bytes": options.memory_max_bytes,
        "timeout_s": timeout_s,
    }
    return _status(_call(device, handle, "start", request, timeout_s=timeout_s + 30.0))


def service_status(device: Device, handle: RunnerHandle) -> ServiceStatus:
    """Whether a service runs there, where it listens, and what it serves."""
    return _status(_call(device, handle, "status", {}))


def stop_service(device: Device, handle: RunnerHandle) -> bool:
    """Ends the service after what it has accepted; whether one ran."""
    return bool(_call(device, handle, "stop", {"who": local_user()})["stopped"])


def service_logs(device: Device, handle: RunnerHandle, *, last: int = 100) -> tuple[str, ...]:
    """The newest lines of its log."""
    return tuple(_call(device, handle, "logs", {"last": last})["lines"])


def _call(
    device: Device,
    handle: RunnerHandle,
    verb: str,
    request: dict[str, Any],
    *,
    timeout_s: float = CALL_TIMEOUT_S,
) -> dict[str, Any]:
    *start, module = handle.argv
    result = device.run(
        [*start, f"{module}.service", verb],
        stdin=json.dumps(request).encode(),
        timeout_s=timeout_s,
    )
    if b"No module named" in result.stderr and not result.stdout.strip():
        raise DeviceError(
            f"the runner on {device.label} is too old to run a service",
            next_step="edgectl serve start MODEL updates it",
        )
    return read_answer(device, result, what=f"the answer to 'serve {verb}'")


def _status(answer: Mapping[str, Any]) -> ServiceStatus:
    fields = {name: answer[name] for name in ServiceStatus.__slots__ if name != "models"}
    models = tuple(
        ModelToServe(name=m["name"], version=m["version"], release=m["release"])
        for m in answer["models"]
    )
    return ServiceStatus(**fields, models=models)
