"""Mixed precision by budget: the layers that cost most accuracy stay float until it is enough.

The cost of a layer is the noise that it alone puts on the outputs. Noise of different layers
adds up nearly independently, so layers are given back to float in the order of noise per
multiply-accumulate, and the shortest such list that keeps the budget is found by bisection; each
candidate on the way is a real model, measured on the evaluation data. At the end, layers that
turn out not to be needed become integer again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from edgectl.errors import UnsupportedModelError
from edgectl.quantization.accuracy import compare_outputs
from edgectl.quantization.calibrate import Sample
from edgectl.quantization.demands import Metric, outputs_of
from edgectl.quantization.fast_evaluation import for_evaluation
from edgectl.quantization.plan import make_plan
from edgectl.quantization.sensitivity import sensitivity

if TYPE_CHECKING:
    from edgectl.quantization.quantizer import Candidate, Workbench

__all__ = ["Budget", "search"]

_SENSITIVITY_SAMPLES = 4
_MOST_SAMPLES = 256
_MOST_TRIALS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What must hold: a drop in percentage points, an SQNR in dB, or both."""

    max_drop: float | None = None
    min_sqnr: float | None = None
    metric: Metric | None = None


def search(
    bench: Workbench, data: Iterable[Sample], budget: Budget
) -> tuple[Candidate, list[dict[str, Any]]]:
    """The candidate with the fewest float MACs found, and the cost of every layer.

    Raises:
        UnsupportedModelError: not even the whole float graph keeps the budget (a metric that
            does not repeat).
    """
    samples = list(islice(iter(data), _MOST_SAMPLES))
    exact = [outputs_of(bench.module, s) for s in samples]
    measured: dict[tuple[str, ...], tuple[bool, Candidate, dict[str, Any]]] = {}
    # The weights of the all-integer plan serve every candidate, so that only the choice of
    # float layers differs between them.
    rounded = bench.rounded(make_plan(bench.module, bench.recipe))
    costs = sensitivity(bench, rounded, bench.samples[:_SENSITIVITY_SAMPLES])
    order = [entry["node"] for entry in costs]
    float_metric = budget.metric(lambda *x: outputs_of(bench.module, x)) if budget.metric else None

    def measure(names: tuple[str, ...]) -> bool:
        if names not in measured:
            candidate = bench.candidate(names, rounded=rounded)
            fast = for_evaluation(candidate.module)
            found = compare_outputs(exact, (outputs_of(fast, s) for s in samples))
            drop = None if found.top1 is None else 100.0 - found.top1
            if budget.metric is not None and float_metric is not None:
                drop = float_metric - budget.metric(lambda *x: outputs_of(fast, x))
            good = True
            if budget.max_drop is not None:
                good = drop is not None and drop <= budget.max_drop + 1e-9
            if budget.min_sqnr is not None:
                good = good and found.mean_sqnr_db >= budget.min_sqnr
            seen = {"drop": drop, "mean_sqnr_db": found.mean_sqnr_db, "float_layers": len(names)}
            measured[names] = (good, candidate, seen)
            bench.progress("keep layers in float", len(measured), None)
        return measured[names][0]

    low, high = -1, 0
    while not measure(tuple(order[:high])):
        if high == len(order):
            raise UnsupportedModelError(
                "The accuracy budget cannot be kept: "
                f"{measured[tuple(order)][2]} with no integer layer left.",
                cause="The metric gives other numbers for the same model, or the budget is < 0.",
            )
        low, high = high, min(len(order), max(1, 2 * high))
    while high - low > 1:
        middle = (low + high) // 2
        if measure(tuple(order[:middle])):
            high = middle
        else:
            low = middle
    macs = {entry["node"]: entry["macs"] for entry in costs}
    kept = _give_back(tuple(order[:high]), macs, measure)
    return measured[kept][1], costs


def _give_back(
    kept: tuple[str, ...], macs: dict[str, int], measure: Callable[[tuple[str, ...]], bool]
) -> tuple[str, ...]:
    """Makes layers integer again, the largest first, as long as the budget holds.

    A layer alone costs more than giving it back saves when its neighbours already pass int8
    values on, so the list that bisection finds is longer than it must be.
    """
    chunk, start, trials = max(1, len(kept) // 2), 0, 0
    ordered = sorted(kept, key=lambda name: -macs[name])
    while start < len(ordered) and trials < _MOST_TRIALS:
        without = ordered[:start] + ordered[start + chunk :]
        trials += 1
        if measure(tuple(without)):
            ordered = without
        elif chunk > 1:
            chunk = max(1, chunk // 2)
        else:
            start += 1
    # In the order of ``kept`` when nothing was given back: that is what was measured.
    return kept if len(ordered) == len(kept) else tuple(ordered)
