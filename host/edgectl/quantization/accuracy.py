"""How far quantized values are from exact ones: layer by layer, and at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from edgectl.quantization.calibrate import Sample, watch

__all__ = ["Agreement", "ErrorTally", "compare_layers", "compare_outputs", "three_way", "verdict"]


class ErrorTally:
    """Sums over pairs of tensors; reads as SQNR, cosine and largest error."""

    def __init__(self) -> None:
        self._signal = self._noise = self._dot = self._other = 0.0
        self._largest = 0.0

    def add(self, exact: torch.Tensor, got: torch.Tensor) -> None:
        """Takes one pair into account."""
        a, b = exact.detach().double().reshape(-1), got.detach().double().reshape(-1)
        finite = torch.isfinite(a) & torch.isfinite(b)
        a, b = a[finite], b[finite]
        self._signal += float(a @ a)
        self._other += float(b @ b)
        self._dot += float(a @ b)
        difference = a - b
        self._noise += float(difference @ difference)
        if len(difference):
            self._largest = max(self._largest, float(difference.abs().max()))

    @property
    def sqnr_db(self) -> float:
        """``10 log10(sum(exact^2) / sum((exact - got)^2))``; infinite when equal."""
        if self._noise == 0.0:
            return math.inf
        return 10 * math.log10(max(self._signal, 1e-300) / self._noise)

    @property
    def cosine(self) -> float:
        """Cosine of the angle between both."""
        return self._dot / max(math.sqrt(self._signal * self._other), 1e-300)

    @property
    def largest_error(self) -> float:
        """Largest absolute difference."""
        return self._largest

    def to_document(self) -> dict[str, float | None]:
        """For JSON, where infinity does not exist: an exact value has SQNR ``None``."""
        sqnr = self.sqnr_db
        return {
            "sqnr_db": None if math.isinf(sqnr) else round(sqnr, 2),
            "cosine": round(self.cosine, 6),
            "max_error": self.largest_error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Two programs on the same inputs. Shares are in percent; ``None`` without classes.

    ``mean_sqnr_db`` is the mean over samples, which is what users see one picture at a time.
    """

    samples: int
    top1: float | None
    top5: float | None
    mean_sqnr_db: float
    sqnr_db: float
    cosine: float
    max_error: float

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "samples": self.samples,
            "top1_agreement_percent": self.top1,
            "top5_agreement_percent": self.top5,
            "mean_sqnr_db": _finite(self.mean_sqnr_db),
            "sqnr_db": _finite(self.sqnr_db),
            "cosine": self.cosine,
            "max_error": self.max_error,
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


# Half precision in another order of sums; the limit that golden outputs are held to, too.
_ROUNDING_DB = 40.0

Program = Callable[[Sample], Sequence[torch.Tensor]]


def compare_outputs(
    exact: Iterable[Sequence[torch.Tensor]], got: Iterable[Sequence[torch.Tensor]]
) -> Agreement:
    """Compares the outputs of two programs, sample by sample.

    Classes are counted on the first float output with more than one value in its last axis.
    """
    tally = ErrorTally()
    per_sample: list[float] = []
    rows = same = among = 0
    samples = 0
    for a_all, b_all in zip(exact, got, strict=True):
        samples += 1
        own = ErrorTally()
        for a, b in zip(a_all, b_all, strict=True):
            if a.is_floating_point():
                own.add(a, b)
                tally.add(a, b)
        per_sample.append(min(own.sqnr_db, 200.0))
        classes = next((i for i, a in enumerate(a_all) if _has_classes(a)), None)
        if classes is not None:
            a, b = (x[classes].reshape(-1, x[classes].shape[-1]) for x in (a_all, b_all))
            best = a.argmax(-1)
            rows += len(best)
            same += int((best == b.argmax(-1)).sum())
            few = min(5, a.shape[-1])
            among += int((b.topk(few, -1).indices == best.unsqueeze(-1)).any(-1).sum())
    return Agreement(
        samples=samples,
        top1=100.0 * same / rows if rows else None,
        top5=100.0 * among / rows if rows else None,
        mean_sqnr_db=sum(per_sample) / max(len(per_sample), 1),
        sqnr_db=tally.sqnr_db,
        cosine=tally.cosine,
        max_error=tally.largest_error,
    )


def _has_classes(value: torch.Tensor) -> bool:
    return value.is_floating_point() and value.dim() >= 1 and value.shape[-1] > 1


def compare_layers(
    exact: fx.GraphModule,
    got: fx.GraphModule,
    names: Sequence[str],
    samples: Iterable[Sample],
) -> dict[str, ErrorTally]:
    """The error of each named node of ``got`` against the node of that name of ``exact``."""
    tallies = {name: ErrorTally() for name in names}
    nodes = [{n.name: n for n in module.graph.nodes} for module in (exact, got)]
    for sample in samples:
        seen: dict[str, torch.Tensor] = {}

        def keep(node: fx.Node, value: Any, seen: dict[str, torch.Tensor] = seen) -> None:
            if isinstance(value, torch.Tensor):
                seen[node.name] = value

        def judge(node: fx.Node, value: Any, seen: dict[str, torch.Tensor] = seen) -> None:
            if isinstance(value, torch.Tensor) and node.name in seen:
                tallies[node.name].add(seen[node.name], value)

        watch(exact, sample, [nodes[0][n] for n in names if n in nodes[0]], keep)
        watch(got, sample, [nodes[1][n] for n in names if n in nodes[1]], judge)
    return tallies


def three_way(
    exact: Sequence[Sequence[torch.Tensor]],
    quantized: Sequence[Sequence[torch.Tensor]],
    device: Sequence[Sequence[torch.Tensor]],
    *,
    reference: str = "fp32",
) -> dict[str, Any]:
    """Outputs of eager fp32, of the quantized program in PyTorch, and of the device, by call.

    Tells apart what quantization costs (fp32 to quantized) from what code generation costs
    (quantized to device), and says in words which it is. ``reference`` is the word for the first.
    """
    quantization = compare_outputs(exact, quantized)
    code = compare_outputs(quantized, device)
    return {
        "quantization": quantization.to_document(),
        "code_generation": code.to_document(),
        "end_to_end": compare_outputs(exact, device).to_document(),
        "verdict": verdict(quantization, code, reference=reference),
    }


def verdict(quantization: Agreement, code: Agreement, *, reference: str = "fp32") -> str:
    """Which of the two steps loses more: fp32 to int8, or the program to the device's code."""
    how = "exactly" if math.isinf(code.sqnr_db) else f"to {code.sqnr_db:.1f} dB"
    if math.isinf(quantization.sqnr_db) and math.isinf(code.sqnr_db):
        return f"Nothing is lost: quantized program and device equal {reference}."
    if code.sqnr_db > quantization.sqnr_db + 10:
        return (
            f"The loss is quantization: {quantization.sqnr_db:.1f} dB against {reference}, while "
            f"the device computes the quantized program {how}."
        )
    if code.sqnr_db >= _ROUNDING_DB:
        return (
            f"Both losses are small: quantization's {quantization.sqnr_db:.1f} dB against "
            f"{reference}, and the device follows the quantized program {how}."
        )
    return (
        f"The device computes something else than the quantized program ({code.sqnr_db:.1f} dB, "
        f"against {quantization.sqnr_db:.1f} dB lost by quantization): look at the compiler, not "
        "at the recipe."
    )
