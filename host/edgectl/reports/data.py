"""Everything that a report can show; what is absent is left out of the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgectl.benchmarking import BenchmarkReport
from edgectl.bundle import read_member
from edgectl.errors import UsageError
from edgectl.records import Bundle
from edgectl.reports.layers import LayerCost, with_shares

__all__ = ["CoverageSummary", "ReportData", "coverage_of", "layers_of_profile", "quantization_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageSummary:
    """Operations by where they went, and those that left TOSA as (module, operator, reason)."""

    operations: Mapping[str, int]
    macs: int
    integer_macs: int
    fallbacks: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """A benchmark, and what else is known of the model."""

    benchmark: BenchmarkReport
    layers: tuple[LayerCost, ...] = ()
    quantization: Mapping[str, Any] | None = None
    coverage: CoverageSummary | None = None


def coverage_of(bundle: Bundle) -> CoverageSummary | None:
    """From the bundle's own coverage; ``None`` where it has none."""
    if "coverage.json" not in bundle.manifest.files:
        return None
    operators = json.loads(read_member(bundle, "coverage.json"))["operators"]
    counts: dict[str, int] = {}
    for operator in operators:
        counts[operator["where"]] = counts.get(operator["where"], 0) + 1
    return CoverageSummary(
        operations=counts,
        macs=sum(o["macs"] for o in operators),
        integer_macs=sum(o["macs"] for o in operators if o["integer"]),
        fallbacks=tuple(
            (o["module"], o["operator"], o["reason"]) for o in operators if o["where"] == "fallback"
        ),
    )


def quantization_of(bundle: Bundle) -> Mapping[str, Any] | None:
    """The quantizer's report; ``None`` for a float model."""
    if "recipe.json" not in bundle.manifest.files:
        return None
    document: dict[str, Any] = json.loads(read_member(bundle, "recipe.json"))
    return document


def layers_of_profile(path: Path) -> tuple[LayerCost, ...]:
    """The layers in what ``edgectl profile --json`` wrote; calls of one layer are added up.

    Raises:
        UsageError: it is something else.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found: dict[tuple[str, str], list[float]] = {}
        for row in document["layers"]:
            key = (row["module"] or row["symbol"], str(row["operator"]))
            sums = found.setdefault(key, [0, 0, 0.0])
            sums[0] += int(row["macs"])
            sums[1] += int(row["read_bytes"]) + int(row["written_bytes"])
            sums[2] += float(row["mean_ms"])
        whole_ms = float(document["whole_ms"])
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is not a profile: {type(error).__name__} {error}.",
            next_step=f"Make one with: edgectl profile MODEL --json > {path.name}",
        ) from error
    rows = [(n, o, int(m), int(b), t) for (n, o), (m, b, t) in found.items()]
    return with_shares(rows, whole_ms=whole_ms)
