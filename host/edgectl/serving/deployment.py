"""From a bundle to a service that runs: prepare the device, push, start."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from edgectl.hooks import Hooks
from edgectl.installing import check_fit, connection, install, prepare
from edgectl.records import Bundle
from edgectl.remote.base import Device
from edgectl.serving.control import ModelToServe, ServiceOptions, ServiceStatus, start_service
from edgectl.settings import Settings

__all__ = ["ServedBundle", "serve_bundle", "served_name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBundle:
    """A bundle behind a service; bytes are what travelled for it."""

    release: str
    status: ServiceStatus
    payload_bytes: int
    runtime_bytes: int


def served_name(name: str) -> str:
    """A model's name as it can stand in an address."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:128]
    return plain or "model"


def serve_bundle(
    bundle: Bundle,
    device: Device,
    options: ServiceOptions,
    *,
    name: str | None = None,
    version: str = "1",
    settings: Settings,
    hooks: Hooks | None = None,
) -> ServedBundle:
    """Installs a bundle and serves it, beside the models that ``options`` names already.

    Raises:
        DeviceError: the device is unfit, found the bundle's outputs wrong, or the service did not
            come up; what ran before still does.
    """
    from edgectl.remote.facts import gather_facts

    hooks = hooks or Hooks()
    manifest = bundle.manifest
    with hooks.step(f"look at {device.label}"):
        python = check_fit(gather_facts(device), (bundle,))
    with connection(device) as on_device:
        handle = prepare(on_device, python, settings=settings, hooks=hooks)
        push = install(
            on_device,
            handle,
            bundle,
            settings=settings,
            hooks=hooks,
            still="What was served before still is",
        )
    model = ModelToServe(
        name=name or served_name(manifest.name), version=version, release=push.release
    )
    with hooks.step("start the service"):
        status = start_service(device, handle, replace(options, models=(*options.models, model)))
    return ServedBundle(
        release=push.release,
        status=status,
        payload_bytes=push.payload_bytes,
        runtime_bytes=handle.bytes_sent,
    )
