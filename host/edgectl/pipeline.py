"""The stages in order; nothing else.

build   source -> ExportedModel -> [QuantizedModel] -> LoweredModule -> CompiledModule -> Bundle
deploy  Bundle -> device -> Deployment
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edgectl.errors import OutputMismatchError
from edgectl.records import Bundle, CompiledModule
from edgectl.settings import Settings, load_settings
from edgectl_runner.contract import RunReport, RunRequest

if TYPE_CHECKING:
    from edgectl.remote import Device, Progress
    from edgectl.sources import TrustPolicy

__all__ = ["BuildOptions", "Deployment", "Hooks", "Timing", "build", "deploy", "mismatch"]


def _no_step(text: str) -> AbstractContextManager[None]:
    del text
    return nullcontext()


def _no_transfer(text: str) -> AbstractContextManager[Progress | None]:
    del text
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """How a caller follows the work: ``step`` wraps each stage, ``transfer`` each upload."""

    step: Callable[[str], AbstractContextManager[None]] = _no_step
    transfer: Callable[[str], AbstractContextManager[Progress | None]] = _no_transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """Everything that decides what a bundle holds."""

    source: str
    target: str
    input_specs: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()
    dialect: str = "auto"
    strict_tosa: bool = False
    kernels: bool = True
    compiler_flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How a run is timed on the device."""

    warmup_iterations: int = 3
    iterations: int = 20
    min_seconds: float = 0.0
    threads: int | None = None
    cpu_affinity: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A bundle on a device, and what its run there gave."""

    device: str
    emulated: bool
    release: str
    payload_bytes: int
    runtime_bytes: int
    report: RunReport
    outputs: bytes | None = field(default=None, repr=False)


def build(
    options: BuildOptions,
    output: Path,
    *,
    trust: TrustPolicy,
    settings: Settings | None = None,
    hooks: Hooks | None = None,
) -> tuple[Bundle, CompiledModule]:
    """Makes a bundle of a model and writes it to ``output``."""
    from edgectl.bundle import write_bundle
    from edgectl.codegen import compile_module, load_target_or_fail
    from edgectl.lowering import lower
    from edgectl.sources import load

    settings = settings or load_settings()
    hooks = hooks or Hooks()
    target = load_target_or_fail(options.target)
    with hooks.step(f"export {Path(options.source).name}"):
        model = load(
            options.source,
            input_specs=options.input_specs,
            inputs=options.inputs,
            trust=trust,
        )
    with hooks.step("lower"):
        lowered = lower(model, dialect=options.dialect, strict_tosa=options.strict_tosa)
    with hooks.step(f"compile for {target.cpu}"):
        compiled = compile_module(
            lowered,
            target,
            kernels=options.kernels,
            extra_flags=options.compiler_flags,
            settings=settings,
        )
    return write_bundle(compiled, output), compiled


def deploy(
    bundle: Bundle,
    device: Device,
    *,
    timing: Timing | None = None,
    settings: Settings | None = None,
    hooks: Hooks | None = None,
) -> Deployment:
    """Prepares the device, pushes what it lacks, runs the bundle there and compares.

    A deployment whose outputs are wrong is returned with ``report.latency`` unset; `mismatch`
    makes the error of it.
    """
    from edgectl.codegen import load_target_or_fail
    from edgectl.doctor import preflight
    from edgectl.remote.facts import gather_facts
    from edgectl.remote.install import prepare_device
    from edgectl.remote.push import push_bundle, run_release
    from edgectl.remote.wheelhouse import SUPPORTED_PYTHONS

    settings = settings or load_settings()
    hooks = hooks or Hooks()
    timing = timing or Timing()
    with hooks.step(f"look at {device.label}"):
        facts = gather_facts(device)
        size = sum(entry.size_bytes for entry in bundle.manifest.files.values())
        preflight(
            facts,
            load_target_or_fail(bundle.manifest.target),
            needed_bytes=size,
            needed_inodes=len(bundle.manifest.files) + 64,
        )
    python = facts.usable_python(SUPPORTED_PYTHONS)
    with hooks.step("prepare the runner"), hooks.transfer("runner") as progress:
        handle = prepare_device(
            device,
            facts,
            python=python.path if python is not None else "python3",
            cache_dir=settings.cache_dir / "wheels",
            progress=progress,
        )
    with hooks.step("push the bundle"), hooks.transfer(bundle.manifest.name) as progress:
        push = push_bundle(device, handle, bundle.path, progress=progress)
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
        report = run_release(device, handle, request, outputs=file)
        outputs = file.read_bytes() if file.exists() else None
    return Deployment(
        device=device.label,
        emulated=device.emulated or report.emulated,
        release=push.release,
        payload_bytes=push.payload_bytes,
        runtime_bytes=handle.bytes_sent,
        report=report,
        outputs=outputs,
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
