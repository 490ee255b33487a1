"""Makes the candidates' bundles: the model is loaded once, and lowered once for each precision."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgectl.bundle import write_bundle
from edgectl.codegen import compile_key, compile_module, load_target_or_fail
from edgectl.errors import UsageError
from edgectl.hooks import Hooks
from edgectl.numbering import Numbering
from edgectl.pipeline import BuildOptions, QuantizeOptions, load_source, quantize_model
from edgectl.records import Bundle, ExportedModel, LoweredModule, QuantizedModel
from edgectl.settings import Settings
from edgectl.tuning.space import Candidate

if TYPE_CHECKING:
    from edgectl.sources import TrustPolicy

__all__ = ["Workshop"]


class Workshop:
    """Everything that a model's candidates share."""

    def __init__(
        self,
        options: BuildOptions,
        folder: Path,
        *,
        trust: TrustPolicy,
        settings: Settings,
        hooks: Hooks,
    ):
        self.options = options
        self.target = load_target_or_fail(options.target)
        self._folder = folder
        self._settings = settings
        self._hooks = hooks
        with hooks.step(f"export {Path(options.source.source).name}"):
            self._model: ExportedModel = load_source(options.source, trust=trust)
        self._lowered: dict[str, tuple[LoweredModule, QuantizedModel | None]] = {}

    @property
    def default(self) -> Candidate:
        """What the user's own options say."""
        quantize = self.options.quantize
        return Candidate(
            precision=quantize.recipe if quantize is not None else "fp32",
            kernels=self.options.kernels,
        )

    def key(self, candidate: Candidate) -> str:
        """Digest of all that decides what the candidate's program is."""
        lowered, _ = self._lower(candidate.precision)
        return compile_key(
            lowered, self.target, kernels=candidate.kernels, extra_flags=self._flags(candidate)
        )

    def make(self, candidate: Candidate, *, numbered: bool = False) -> tuple[Bundle, str]:
        """The candidate's bundle, and a digest of its code alone.

        Only what is kept is ``numbered``: mere candidates make nothing else look old.

        Raises:
            CompileError: this choice does not compile.
        """
        lowered, quantized = self._lower(candidate.precision)
        with self._hooks.step(f"compile: {candidate.label}"):
            compiled = compile_module(
                lowered,
                self.target,
                kernels=candidate.kernels,
                extra_flags=self._flags(candidate),
                settings=self._settings,
            )
        digest = hashlib.sha256(compiled.vmfb).hexdigest()
        path = self._folder / f"{digest[:24]}.edgectl"
        sequence = Numbering(self._settings.state_dir) if numbered else 0
        if quantized is None:
            return write_bundle(compiled, path, sequence=sequence), digest
        bundle = write_bundle(
            compiled,
            path,
            sequence=sequence,
            precision=quantized.recipe_name,
            limits=quantized.limits,
            quantized=quantized,
        )
        return bundle, digest

    def _flags(self, candidate: Candidate) -> tuple[str, ...]:
        return (*self.options.compiler_flags, *candidate.compiler_flags)

    def _lower(self, precision: str) -> tuple[LoweredModule, QuantizedModel | None]:
        if precision not in self._lowered:
            self._lowered[precision] = self._newly_lowered(precision)
        return self._lowered[precision]

    def _newly_lowered(self, precision: str) -> tuple[LoweredModule, QuantizedModel | None]:
        from edgectl.lowering import lower

        model, quantized = self._model, None
        options = self.options.quantize or QuantizeOptions(recipe=precision)
        if precision != "fp32":
            if "int8" in precision and options.calibration is None:
                raise UsageError(
                    f"{precision} needs typical inputs to be calibrated with.",
                    next_step="Add --calibration DATA, with --quantize or --precisions.",
                )
            with self._hooks.step(f"quantize ({precision})"):
                quantized = quantize_model(
                    model, replace(options, recipe=precision), self.options.source
                )
            model = quantized.model
        with self._hooks.step(f"lower ({precision})"):
            lowered = lower(
                model,
                dialect=self.options.dialect,
                strict_tosa=self.options.strict_tosa,
                exact_rounding=self.options.exact_rounding,
            )
        if quantized is not None:
            from edgectl.lowering.integer import account_for

            wanted = options.require_int8 if "int8" in precision else None
            quantized = account_for(quantized, lowered.model, require_int8=wanted)
        return lowered, quantized
