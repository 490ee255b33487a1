"""What a user demands of a quantized model: a measure of their own, and limits that hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from edgectl.errors import UnsupportedModelError, UsageError
from edgectl.quantization.calibrate import Sample
from edgectl.quantization.fast_evaluation import for_evaluation

__all__ = ["Metric", "check_demands", "measured", "metric_of", "outputs_of"]

Metric = Callable[[Callable[..., Any]], float]
"""Gets a function that runs the model (tensors in, flat list of tensors out); returns percent."""


def outputs_of(module: fx.GraphModule, sample: Sample) -> list[torch.Tensor]:
    """The tensors among the outputs of one call, flat."""
    with torch.no_grad():
        result = module(*sample)
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def metric_of(source: Metric | str) -> Metric:
    """A metric whose answers are checked; a text names it as ``file.py:function``.

    Raises:
        UsageError: there is no such function; later, when it does not return a number.
    """
    if isinstance(source, str):
        from edgectl.sources.factory import resolve

        function, name = resolve(source), source
    else:
        function, name = source, getattr(source, "__name__", "the metric")

    def checked(run: Callable[..., Any]) -> float:
        try:
            found = float(function(run))
        except Exception as error:
            raise UsageError(
                f"The metric {name} fails: {type(error).__name__}: {error}",
                next_step="It gets a function that takes input tensors and returns the list of "
                "output tensors, and returns one number in percent.",
            ) from error
        if not math.isfinite(found):
            raise UsageError(f"The metric {name} returned {found}, which is no percentage.")
        return found

    return checked


def measured(metric: Metric, exact: fx.GraphModule, quantized: fx.GraphModule) -> dict[str, float]:
    """The metric of both programs."""
    fast = for_evaluation(quantized)
    return {
        "float_percent": metric(lambda *x: outputs_of(exact, list(x))),
        "quantized_percent": metric(lambda *x: outputs_of(fast, list(x))),
    }


def check_demands(
    report: Mapping[str, Any],
    *,
    max_drop: float | None,
    min_sqnr: float | None,
    require_int8: float | None,
) -> None:
    """Holds a recipe that has no choice of layers to what was demanded of it.

    Raises:
        UnsupportedModelError: one of the limits does not hold.
    """
    found, share = report["against_float"], report["integer_macs_share"]
    if require_int8 is not None and share < require_int8:
        raise _missed(
            f"Only {100 * share:.1f} % of the multiply-accumulates are int8; "
            f"{100 * require_int8:.1f} % are required."
        )
    sqnr = found["mean_sqnr_db"]
    if min_sqnr is not None and sqnr is not None and sqnr < min_sqnr:
        raise _missed(f"The model keeps {sqnr:.1f} dB; {min_sqnr:.1f} dB are required.")
    if max_drop is None:
        return
    own = report.get("metric")
    if own is not None:
        drop = own["float_percent"] - own["quantized_percent"]
    elif found["top1_agreement_percent"] is not None:
        drop = 100.0 - found["top1_agreement_percent"]
    else:
        raise UsageError(
            "--max-drop counts top-1 answers, and this model's outputs are no classes.",
            next_step="Use --min-sqnr, or a --metric of your own.",
        )
    if drop > max_drop + 1e-9:
        raise _missed(f"The model loses {drop:.2f} percentage points; {max_drop:.2f} are allowed.")


def _missed(message: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        message,
        cause="This recipe does not choose which layers stay float.",
        next_step="Use --quantize int8 with --calibration, which keeps the worst layers in float.",
    )
