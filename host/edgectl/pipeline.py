"""The stages in order; nothing else.

build   source -> ExportedModel -> [QuantizedModel] -> LoweredModule -> CompiledModule -> Bundle
deploy  Bundle -> device -> Deployment
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from edgectl.errors import DeviceError, OutputMismatchError
from edgectl.records import Bundle, CompiledModule, ExportedModel, LoweredModule, QuantizedModel
from edgectl.settings import Settings, load_settings
from edgectl_runner.contract import RunReport, RunRequest

if TYPE_CHECKING:
    from edgectl.quantization.recipe import Quality
    from edgectl.remote import Device, Progress
    from edgectl.sources import ImageOptions, TrustPolicy

__all__ = [
    "BuildOptions",
    "Deployment",
    "DeploymentPlan",
    "Hooks",
    "QuantizeOptions",
    "Sending",
    "SourceOptions",
    "Timing",
    "build",
    "deploy",
    "load_source",
    "mismatch",
    "plan_deployment",
    "quantize_model",
]


Result = TypeVar("Result")


def _no_step(text: str) -> AbstractContextManager[None]:
    del text
    return nullcontext()


def _no_count(text: str) -> AbstractContextManager[Callable[[str, int, int | None], None] | None]:
    del text
    return nullcontext()


def _no_transfer(text: str) -> AbstractContextManager[Progress | None]:
    del text
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """How a caller follows the work.

    ``step`` wraps each stage, ``transfer`` each upload (bytes done, bytes in all), ``count`` what
    has many steps of its own (its name, how many are done, how many there are if that is known).
    """

    step: Callable[[str], AbstractContextManager[None]] = _no_step
    count: Callable[
        [str], AbstractContextManager[Callable[[str, int, int | None], None] | None]
    ] = _no_count
    transfer: Callable[[str], AbstractContextManager[Progress | None]] = _no_transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """A model and how it is loaded; the texts are spelled as on the command line."""

    source: str
    input_specs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    dynamic: tuple[str, ...] = ()
    architecture: str | None = None
    state_key: str | None = None
    keep_half: bool = False
    image_size: str | None = None
    mean: str | None = None
    std: str | None = None
    tokenizer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeOptions:
    """A recipe and what it is calibrated and judged by."""

    recipe: str
    calibration: str | None = None
    evaluation: str | None = None
    samples: int | None = None
    quality: str = "default"
    observer: str | None = None
    max_drop: float | None = None
    min_sqnr: float | None = None
    require_int8: float | None = None
    quantized_io: bool = False
    keep_float: tuple[str, ...] = ()
    metric: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """Everything that decides what a bundle holds."""

    source: SourceOptions
    target: str
    quantize: QuantizeOptions | None = None
    dialect: str = "auto"
    strict_tosa: bool = False
    exact_rounding: bool = False
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
class Sending:
    """How a bundle travels: no faster than ``bytes_per_s``; an older one only if that is allowed.

    ``reconnect`` opens the device again after a broken connection; without it the first break
    ends the deployment (and the next one goes on where it stopped).
    """

    bytes_per_s: float | None = None
    allow_downgrade: bool = False
    reconnect: Callable[[], Device] | None = None
    notify: Callable[[str], None] = print


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
    from edgectl.numbering import Numbering

    settings = settings or load_settings()
    hooks = hooks or Hooks()
    target = load_target_or_fail(options.target)
    with hooks.step(f"export {Path(options.source.source).name}"):
        model = load_source(options.source, trust=trust)
    quantized = None
    if options.quantize is not None:
        with (
            hooks.step(f"quantize ({options.quantize.recipe})"),
            hooks.count("quantize") as progress,
        ):
            quantized = quantize_model(model, options.quantize, options.source, progress=progress)
        model = quantized.model
    with hooks.step("lower"):
        lowered = lower(
            model,
            dialect=options.dialect,
            strict_tosa=options.strict_tosa,
            exact_rounding=options.exact_rounding,
        )
    quantized = _accounted(quantized, model, lowered, options.quantize)
    with hooks.step(f"compile for {target.cpu}"):
        compiled = compile_module(
            lowered,
            target,
            kernels=options.kernels,
            extra_flags=options.compiler_flags,
            settings=settings,
        )
    if quantized is None:
        return write_bundle(compiled, output, sequence=Numbering(settings.state_dir)), compiled
    bundle = write_bundle(
        compiled,
        output,
        sequence=Numbering(settings.state_dir),
        precision=quantized.recipe_name,
        limits=quantized.limits,
        quantized=quantized,
    )
    return bundle, compiled


def _accounted(
    quantized: QuantizedModel | None,
    model: ExportedModel,
    lowered: LoweredModule,
    options: QuantizeOptions | None,
) -> QuantizedModel | None:
    """What is integer in the program that is compiled; also of a model that came quantized."""
    from edgectl.lowering.integer import account_for, account_for_prequantized, holds_pairs

    if quantized is not None and options is not None:
        return account_for(quantized, lowered.model, require_int8=options.require_int8)
    if model.imported is None and holds_pairs(model.program):
        return account_for_prequantized(model, lowered.model)
    return None


def load_source(options: SourceOptions, *, trust: TrustPolicy) -> ExportedModel:
    """Loads and exports a model."""
    from edgectl.sources import load

    return load(
        options.source,
        input_specs=options.input_specs,
        inputs=options.inputs,
        dynamic=options.dynamic,
        trust=trust,
        architecture=options.architecture,
        state_key=options.state_key,
        keep_half=options.keep_half,
        images=_images(options),
        tokenizer=options.tokenizer,
    )


def quantize_model(
    model: ExportedModel,
    options: QuantizeOptions,
    source: SourceOptions,
    *,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> QuantizedModel:
    """Quantizes a loaded model."""
    from edgectl.quantization import quantize

    changes: dict[str, Any] = {}
    if options.observer is not None:
        changes["observer"] = options.observer
    if options.quantized_io:
        changes["quantized_io"] = True
    if options.keep_float:
        changes["keep_float"] = options.keep_float
    return quantize(
        model,
        options.recipe,
        options.calibration,
        quality=cast("Quality", options.quality),
        samples=options.samples,
        images=_images(source),
        evaluation=options.evaluation,
        max_drop=options.max_drop,
        min_sqnr=options.min_sqnr,
        require_int8=options.require_int8,
        metric=options.metric,
        progress=progress,
        **changes,
    )


def _images(options: SourceOptions) -> ImageOptions | None:
    if options.image_size is None and options.mean is None and options.std is None:
        return None
    from edgectl.sources import parse_image_options

    return parse_image_options(options.image_size, options.mean, options.std)


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
    from edgectl.remote.install import prepare_device
    from edgectl.remote.push import push_bundle, run_release
    from edgectl.signing import load_or_create_key

    settings = settings or load_settings()
    hooks = hooks or Hooks()
    timing = timing or Timing()
    sending = sending or Sending()
    with hooks.step(f"look at {device.label}"):
        python = _usable_python(bundle, device)
    with _connection(device, sending) as on_device:
        with hooks.step("prepare the runner"), hooks.transfer("runner") as progress:
            handle = on_device(
                lambda device, watch: prepare_device(
                    device,
                    python=python,
                    cache_dir=settings.cache_dir / "wheels",
                    progress=watch,
                    bytes_per_s=sending.bytes_per_s,
                ),
                progress,
            )
        with hooks.step("push the bundle"), hooks.transfer(bundle.manifest.name) as progress:
            key = load_or_create_key(settings.config_dir / "keys")
            push = on_device(
                lambda device, watch: push_bundle(
                    device,
                    handle,
                    bundle.path,
                    key=key,
                    progress=watch,
                    bytes_per_s=sending.bytes_per_s,
                    allow_downgrade=sending.allow_downgrade,
                ),
                progress,
            )
        if push.healthy is False:
            raise DeviceError(
                f"The device took {bundle.manifest.name} on probation and went back: "
                f"{push.reason or 'it did not prove healthy'}.",
                cause="The new release did not load, or did not answer as PyTorch does, there.",
                next_step=f"The release before it still runs; edgectl doctor {device.label}",
            )
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
    from edgectl.remote.install import plan_preparation
    from edgectl.remote.push import plan_push
    from edgectl.signing import load_or_create_key

    settings = settings or load_settings()
    python = _usable_python(bundle, device)
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


def _usable_python(bundle: Bundle, device: Device) -> str:
    """The device's interpreter, once everything that the deployment needs was found there."""
    from edgectl.codegen import load_target_or_fail
    from edgectl.doctor import preflight
    from edgectl.remote.facts import gather_facts
    from edgectl.remote.wheelhouse import SUPPORTED_PYTHONS

    facts = gather_facts(device)
    preflight(
        facts,
        load_target_or_fail(bundle.manifest.target),
        needed_bytes=sum(entry.size_bytes for entry in bundle.manifest.files.values()),
        needed_inodes=len(bundle.manifest.files) + 64,
    )
    python = facts.usable_python(SUPPORTED_PYTHONS)
    return python.path if python is not None else "python3"


@contextmanager
def _connection(device: Device, sending: Sending) -> Iterator[_Connection]:
    """The device's connection, replaced after breaks; a replacement is closed at the end."""
    connection = _Connection(device, sending)
    try:
        yield connection
    finally:
        if connection.device is not device:
            connection.device.close()


class _Connection:
    """What is open to the device at the moment."""

    def __init__(self, device: Device, sending: Sending):
        self.device = device
        self._sending = sending

    def __call__(
        self, action: Callable[[Device, Progress], Result], progress: Progress | None
    ) -> Result:
        """``action`` on the device, over new connections if it breaks and may be opened again."""
        from edgectl.remote.reconnecting import Watch, with_reconnects

        reconnect, watch = self._sending.reconnect, Watch(progress)
        if reconnect is None:
            return action(self.device, watch)
        result, self.device = with_reconnects(
            self.device,
            reconnect,
            lambda device: action(device, watch),
            watch=watch,
            notify=self._sending.notify,
        )
        return result


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
