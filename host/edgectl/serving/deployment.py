"""From a bundle to a service that runs: prepare the device, push, start."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from edgectl.errors import DeviceError
from edgectl.pipeline import Hooks
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
    from edgectl.codegen import load_target_or_fail
    from edgectl.doctor import preflight
    from edgectl.remote.facts import gather_facts
    from edgectl.remote.install import prepare_device
    from edgectl.remote.push import push_bundle
    from edgectl.remote.wheelhouse import SUPPORTED_PYTHONS
    from edgectl.signing import load_or_create_key

    hooks = hooks or Hooks()
    manifest = bundle.manifest
    with hooks.step(f"look at {device.label}"):
        facts = gather_facts(device)
        preflight(
            facts,
            load_target_or_fail(manifest.target),
            needed_bytes=sum(entry.size_bytes for entry in manifest.files.values()),
            needed_inodes=len(manifest.files) + 64,
        )
    python = facts.usable_python(SUPPORTED_PYTHONS)
    with hooks.step("prepare the runner"), hooks.transfer("runner") as progress:
        handle = prepare_device(
            device,
            python=python.path if python is not None else "python3",
            cache_dir=settings.cache_dir / "wheels",
            progress=progress,
        )
    with hooks.step("push the bundle"), hooks.transfer(manifest.name) as progress:
        key = load_or_create_key(settings.config_dir / "keys")
        push = push_bundle(device, handle, bundle.path, key=key, progress=progress)
    if push.healthy is False:
        raise DeviceError(
            f"The device took {manifest.name} on probation and went back: "
            f"{push.reason or 'it did not prove healthy'}.",
            cause="The new release did not load, or did not answer as PyTorch does, there.",
            next_step=f"What was served before still is; edgectl doctor {device.label}",
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
