"""From the options of ``compile``, ``deploy`` and ``explain`` to a model or a bundle."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgectl.cli.connecting import DEFAULT_TARGET
from edgectl.cli.console import Output
from edgectl.hooks import Hooks
from edgectl.pipeline import BuildOptions, QuantizeOptions, SourceOptions, build, load_source
from edgectl.settings import load_settings

if TYPE_CHECKING:
    from edgectl.records import Bundle, CompiledModule, ExportedModel
    from edgectl.sources import TrustPolicy

__all__ = ["build_from_options", "build_options_of", "hooks_of", "load_model", "trust_of"]


def hooks_of(output: Output) -> Hooks:
    """Progress of the pipeline, shown by this output."""
    return Hooks(step=output.step, count=output.count, transfer=output.transfer)


def load_model(output: Output, source: SourceOptions, *, trust_model: bool) -> ExportedModel:
    """Loads and exports a model, asking once whether the file may run code."""
    with output.step(f"export {Path(source.source).name}"):
        return load_source(source, trust=trust_of(output, trusted=trust_model))


def build_from_options(path: Path, output: Output, **values: Any) -> tuple[Bundle, CompiledModule]:
    """Runs the stages up to a bundle; ``values`` are what `build_options` gave the command."""
    trust = trust_of(output, trusted=values["trust_model"])
    options = build_options_of(**values)
    return build(options, path, trust=trust, settings=load_settings(), hooks=hooks_of(output))


def build_options_of(
    *,
    source: SourceOptions,
    target: str | None,
    quantize: QuantizeOptions | None,
    trust_model: bool,
    dialect: str,
    strict_tosa: bool,
    exact_rounding: bool,
    compiler_flags: tuple[str, ...],
    no_kernels: bool,
) -> BuildOptions:
    """What decides a bundle, of what `edgectl.cli.options.build_options` gave the command."""
    del trust_model  # decides whether, not what
    return BuildOptions(
        source=source,
        target=target or DEFAULT_TARGET,
        quantize=quantize,
        dialect=dialect,
        strict_tosa=strict_tosa,
        exact_rounding=exact_rounding,
        kernels=not no_kernels,
        compiler_flags=compiler_flags,
    )


def trust_of(output: Output, *, trusted: bool) -> TrustPolicy:
    """Whether files may run code: as the user said, or as they answer where one can be asked."""
    from edgectl.sources import TrustPolicy

    def ask(question: str) -> bool:
        with output.paused():
            return click.confirm(question, err=True)

    interactive = sys.stdin.isatty() and sys.stderr.isatty() and not output.as_json
    return TrustPolicy(
        trusted=trusted,
        ask=ask if interactive else None,
        state_dir=load_settings().state_dir,
    )
