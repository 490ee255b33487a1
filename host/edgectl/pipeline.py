"""The stages from a model to a bundle, in order; nothing else.

    source -> ExportedModel -> [QuantizedModel] -> LoweredModule -> CompiledModule -> Bundle

What becomes of a bundle on a device is in `edgectl.deployment`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from edgectl.hooks import Hooks
from edgectl.records import Bundle, CompiledModule, ExportedModel, LoweredModule, QuantizedModel
from edgectl.settings import Settings, load_settings

if TYPE_CHECKING:
    from edgectl.quantization.recipe import Quality
    from edgectl.sources import ImageOptions, TrustPolicy

__all__ = [
    "BuildOptions",
    "QuantizeOptions",
    "SourceOptions",
    "build",
    "load_source",
    "quantize_model",
]


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
