"""A bundle on a device: installed, compared with PyTorch, and timed."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgectl.errors import OutputMismatchError
from edgectl.hooks import Hooks
from edgectl.installing import Sending, check_fit, connection, install, prepare
from edgectl.records import Bundle
from edgectl.settings import Settings, load_settings
from edgectl_runner.contract import RunReport, RunRequest

if TYPE_CHECKING:
    from edgectl.remote import Device

__all__ = [
    "Deployment",
    "DeploymentPlan",
    "Timing",
    "deploy",
    "mismatch",
    "plan_deployment",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How a run is timed on the device."""

    warmup_iterations: int = 3
    iterations: int = 20
    min_seconds: float = 0.0
    threads: int | None = None
    cpu_affinity: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentPlan:
    """What a deployment would do to a device; ``files`` are written there on the way."""

    device: str
    release: str | None
    runtime_bytes: int
    payload_bytes: int
    files: tuple[str, ...]
    already_installed: bool
    already_current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A bundle on a device, and what its run there gave.

    ``accuracy`` tells quantization's loss from code generation's (`edgectl.device_accuracy`).
    """

    device: str
    emulated: bool
    release: str
    payload_bytes: int
    runtime_bytes: int
    report: RunReport
    outputs: bytes | None = field(default=None, repr=False)
    accuracy: Mapping[str, Any] | None = None


def deploy(
    bundle: Bundle,
    device: Device,
    *,
    timing: Timing | None = None,
    sending: Sending | None = None,
    settings: Settings | None = None,
    hooks: Hooks | None = None,
) -> Deployment:
    """Prepares the device, pushes what it lacks, runs the bundle there and compares.

    A deployment whose outputs are wrong is returned with ``report.latency`` unset; `mismatch`
    makes the error of it.
    """
    from edgectl.device_accuracy import device_accuracy
    from edgectl.remote.facts import gather_facts
    from edgectl.remote.push import run_release

    settings = settings or load_settings()
    hooks = hooks or Hooks()
    timing = timing or Timing()
    with hooks.step(f"look at {device.label}"):
        python = check_fit(gather_facts(device), (bundle,))
    with connection(device, sending) as on_device:
        handle = prepare(on_device, python, settings=settings, hooks=hooks)
        push = install(on_device, handle, bundle, settings=settings, hooks=hooks)
        with hooks.step("check and time"), tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "out.npz"
            request = RunRequest(
                release=push.release,
                warmup_iterations=timing.warmup_iterations,
                iterations=timing.iterations,
                min_seconds=timing.min_seconds,
                threads=timing.threads,
                cpu_affinity=timing.cpu_affinity,
            )
            # Not tried again: a second run would be another measurement.
            report = run_release(on_device.device, handle, request, outputs=file)
            outputs = file.read_bytes() if file.exists() else None
    return Deployment(
        device=device.label,
        emulated=device.emulated or report.emulated,
        release=push.release,
        payload_bytes=push.payload_bytes,
        runtime_bytes=handle.bytes_sent,
        report=report,
        outputs=outputs,
        accuracy=device_accuracy(bundle, report, outputs),
    )


def plan_deployment(
    bundle: Bundle, device: Device, *, settings: Settings | None = None
) -> DeploymentPlan:
    """What `deploy` would send; nothing is changed on the device.

    Raises:
        EdgectlError: as `deploy` would before its first byte travels.
    """
    from edgectl.remote.facts import gather_facts
    from edgectl.remote.install import plan_preparation
    from edgectl.remote.push import plan_push
    from edgectl.signing import load_or_create_key

    settings = settings or load_settings()
    python = check_fit(gather_facts(device), (bundle,))
    handle, runtime_bytes = plan_preparation(
        device, python=python, cache_dir=settings.cache_dir / "wheels"
    )
    if handle is None:  # nobody there who could say what is missing: everything is
        return DeploymentPlan(
            device=device.label,
            release=None,
            runtime_bytes=runtime_bytes,
            payload_bytes=sum(f.size_bytes for f in bundle.manifest.files.values()),
            files=(),
            already_installed=False,
            already_current=False,
        )
    key = load_or_create_key(settings.config_dir / "keys")
    plan = plan_push(device, handle, bundle.path, key=key)
    return DeploymentPlan(
        device=device.label,
        release=plan.release,
        runtime_bytes=runtime_bytes,
        payload_bytes=plan.payload_bytes,
        files=plan.files,
        already_installed=plan.already_installed,
        already_current=plan.already_current,
    )


def mismatch(report: RunReport) -> OutputMismatchError | None:
    """The error of a run whose outputs are not PyTorch's, or ``None`` when they are."""
    wrong = [c for c in report.comparisons if not c.passed]
    if not wrong and report.comparisons:
        return None
    if not wrong:
        return OutputMismatchError(
            "The device returned no output to compare, so nothing is known to be right.",
            next_step="Compile the bundle again with an example input.",
        )
    worst = max(wrong, key=lambda c: c.max_relative_error)
    return OutputMismatchError(
        f"The device does not compute what PyTorch computes: output {worst.name!r} of call "
        f"{worst.call} differs by up to {worst.max_absolute_error:.3g} "
        f"({worst.max_relative_error:.2g} of its largest value). No latency is reported.",
        cause=worst.reason or "The compiler or the runtime produced wrong code for this model.",
        next_step="Try --no-kernels, then --dialect linalg; then report it with the bundle.",
    )
