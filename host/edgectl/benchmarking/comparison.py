"""A against B: interleaved on one device, or from two finished benchmarks; and the verdict.

Everything is said of B, with A as what it is measured by: a ratio above 1 is slower.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

import numpy as np

from edgectl.benchmarking.intervals import Interval, paired_ratio, rounds_needed, unpaired_ratio
from edgectl.benchmarking.provenance import provenance_of
from edgectl.benchmarking.records import BenchmarkReport, Provenance, Run
from edgectl.benchmarking.session import Session
from edgectl.benchmarking.validity import judge
from edgectl.errors import EdgectlError, RegressionError, UsageError
from edgectl.records import Bundle
from edgectl_runner.contract import LoadPlan, RunReport

__all__ = [
    "COMPARISON_VERSION",
    "CompareOptions",
    "ComparisonReport",
    "ComparisonRow",
    "Side",
    "compare_bundles",
    "compare_reports",
    "regression",
    "verdict_of",
]

COMPARISON_VERSION = 1
_NOT_INTERLEAVED = (
    "the two were not interleaved: the interval holds what changed inside each run, not what "
    "changed between them"
)

Verdict = Literal["better", "worse", "no difference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareOptions:
    """How B is compared with A; ``threads`` of ``None`` is every processor.

    From 16 rounds on, one spoilt round cannot hide a difference at 0.99 confidence.
    """

    rounds: int = 16
    queries: int = 16
    seconds: float = 1.0
    max_seconds: float = 60.0
    max_warmup_seconds: float = 30.0
    threads: int | None = None
    cpu_affinity: tuple[int, ...] | None = None
    percentile: float = 50.0
    confidence: float = 0.99
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two."""

    name: str
    model: str
    precision: str
    device: str
    created: str
    provenance: Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One setting: the quantile of each side in ms, B over A with its interval, the verdict.

    ``rounds_a_ms`` and ``rounds_b_ms`` hold one value for each round of interleaved runs.
    """

    setting: str
    a_ms: float
    b_ms: float
    ratio: float
    low: float
    high: float
    verdict: Verdict
    valid: bool
    invalid: tuple[str, ...]
    rounds_a_ms: tuple[float, ...] = ()
    rounds_b_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonReport:
    """A comparison; ``method`` says how the interval came about."""

    schema_version: int = COMPARISON_VERSION
    kind: Literal["comparison"] = "comparison"
    method: Literal["interleaved", "two reports"]
    emulated: bool
    percentile: float
    confidence: float
    created: str
    a: Side
    b: Side
    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...]


def verdict_of(interval: Interval) -> Verdict:
    """Of B: nothing is said as long as the interval holds 1."""
    if interval.low > 1.0:
        return "worse"
    return "better" if interval.high < 1.0 else "no difference"


def regression(report: ComparisonReport, *, max_regression: float) -> RegressionError | None:
    """The error of a B that is slower than allowed, at the report's confidence.

    ``max_regression`` is a share: 0.03 allows 3 %. It takes the whole interval beyond it: a
    regression that may be noise is none.
    """
    worst = max(report.rows, key=lambda row: row.low)
    if worst.low <= 1.0 + max_regression:
        return None
    return RegressionError(
        f"{report.b.name} is {worst.ratio - 1:.1%} slower than {report.a.name} ({worst.setting}; "
        f"{report.confidence:.0%} interval {worst.low - 1:+.1%} to {worst.high - 1:+.1%}), more "
        f"than the {max_regression:.1%} allowed.",
        cause="The change between the two costs time on this device.",
        next_step="edgectl profile shows which layer it is.",
    )


def compare_bundles(
    session: Session,
    a: Bundle,
    b: Bundle,
    options: CompareOptions,
    *,
    names: tuple[str, str],
    progress: Callable[[str, int, int | None], None] | None = None,
) -> ComparisonReport:
    """Runs both in turn on one device, in an order drawn anew for each round.

    Raises:
        UsageError: there are too few rounds for the confidence.
        OutputMismatchError: one of the two computes wrong outputs.
    """
    check_rounds(options)
    bundles = (a, b)
    releases = [session.install(bundle) for bundle in bundles]
    plan = LoadPlan(
        min_queries=options.queries,
        min_seconds=options.seconds,
        max_seconds=max(options.max_seconds, options.seconds),
        max_warmup_seconds=options.max_warmup_seconds,
    )
    source = random.Random(options.seed)  # noqa: S311 - an order that can be made again
    reports: tuple[list[RunReport], list[RunReport]] = ([], [])
    with session.hooks.step(f"{options.rounds} rounds of each, interleaved"):
        for number in range(options.rounds):
            for side in source.sample((0, 1), 2):
                reports[side].append(
                    session.run(
                        releases[side],
                        plan,
                        threads=options.threads,
                        cpu_affinity=options.cpu_affinity,
                    )
                )
            if progress is not None:
                progress("rounds", number + 1, options.rounds)
    rounds = [
        tuple(float(np.percentile(r.latencies_ms, options.percentile)) for r in side)
        for side in reports
    ]
    interval = paired_ratio(*rounds, confidence=options.confidence)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    sides = [
        Side(
            name=name,
            model=bundle.manifest.name,
            precision=bundle.manifest.precision,
            device=session.device.label,
            created=now,
            provenance=provenance_of(session, bundle, runs[0]),
        )
        for name, bundle, runs in zip(names, bundles, reports, strict=True)
    ]
    invalid = _invalid_rounds([*reports[0], *reports[1]])
    row = _row(
        f"single_stream, {reports[0][0].threads} threads",
        interval,
        (float(np.median(rounds[0])), float(np.median(rounds[1]))),
        invalid,
    )
    return ComparisonReport(
        method="interleaved",
        emulated=session.emulated,
        percentile=options.percentile,
        confidence=options.confidence,
        created=now,
        a=sides[0],
        b=sides[1],
        rows=(_with_rounds(row, rounds),),
        notes=("emulated: no figure is a Pi's",) if session.emulated else (),
    )


def check_rounds(options: CompareOptions) -> None:
    """Refuses too few rounds before the first is made."""
    if options.rounds < rounds_needed(options.confidence):
        raise UsageError(
            f"{options.rounds} rounds cannot give an interval at {options.confidence:g} "
            "confidence.",
            next_step=f"Ask for --rounds {rounds_needed(options.confidence)} or more, or for less "
            "--confidence.",
        )


def compare_reports(
    a: BenchmarkReport,
    b: BenchmarkReport,
    *,
    names: tuple[str, str],
    percentile: float = 50.0,
    confidence: float = 0.99,
    seed: int = 0,
) -> ComparisonReport:
    """Every setting that both reports have.

    Raises:
        UsageError: they share none.
    """
    others = {_setting(run): run for run in b.runs}
    rows = []
    for run in a.runs:
        other = others.get(_setting(run))
        if other is None:
            continue
        interval = unpaired_ratio(
            run.latencies_ms,
            other.latencies_ms,
            percentile=percentile,
            confidence=confidence,
            seed=seed,
        )
        quantiles = (
            float(np.percentile(run.latencies_ms, percentile)),
            float(np.percentile(other.latencies_ms, percentile)),
        )
        invalid = [
            f"{n}: {why}" for n, r in zip("AB", (run, other), strict=True) for why in r.invalid
        ]
        rows.append(_row(_setting(run), interval, quantiles, invalid))
    if not rows:
        raise UsageError(
            "The two reports have no run in common (scenario, threads, batch and rate).",
            next_step="Make both with the same options of edgectl bench.",
        )
    sides = [
        Side(
            name=name,
            model=report.model,
            precision=report.precision,
            device=report.device,
            created=report.created,
            provenance=report.provenance,
        )
        for name, report in zip(names, (a, b), strict=True)
    ]
    return ComparisonReport(
        method="two reports",
        emulated=a.emulated or b.emulated,
        percentile=percentile,
        confidence=confidence,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        a=sides[0],
        b=sides[1],
        rows=tuple(rows),
        notes=_differences(a, b),
    )


def _row(
    setting: str, interval: Interval, quantiles: tuple[float, float], invalid: Sequence[str]
) -> ComparisonRow:
    return ComparisonRow(
        setting=setting,
        a_ms=quantiles[0],
        b_ms=quantiles[1],
        ratio=interval.ratio,
        low=interval.low,
        high=interval.high,
        verdict=verdict_of(interval),
        valid=not invalid,
        invalid=tuple(invalid),
    )


def _invalid_rounds(reports: Sequence[RunReport]) -> list[str]:
    counts: dict[str, int] = {}
    for report in reports:
        if report.load is None:
            raise EdgectlError("A run came back without its load.")
        for reason in judge(report.load, report.before, report.after)[0]:
            kind = reason.split(" kept ")[0]
            counts[kind] = counts.get(kind, 0) + 1
    return [
        f"{count} of {len(reports)} runs: "
        + ("other programs kept processors busy" if kind == "other programs" else kind)
        for kind, count in counts.items()
    ]


def _with_rounds(row: ComparisonRow, rounds: Sequence[tuple[float, ...]]) -> ComparisonRow:
    return replace(row, rounds_a_ms=rounds[0], rounds_b_ms=rounds[1])


def _setting(run: Run) -> str:
    text = f"{run.scenario}, {run.threads} threads"
    if run.batch != 1:
        text += f", batch {run.batch}"
    if run.target_qps is not None:
        text += f", {run.target_qps:g} queries/s"
    return text


def _differences(a: BenchmarkReport, b: BenchmarkReport) -> tuple[str, ...]:
    notes = [_NOT_INTERLEAVED]
    if a.emulated or b.emulated:
        notes.append("emulated: no figure is a Pi's")
    pairs = {
        "board": (a.provenance.board, b.provenance.board),
        "device": (a.device, b.device),
        "kernel": (a.provenance.kernel, b.provenance.kernel),
        "governor": (a.provenance.governor, b.provenance.governor),
        "model": (a.model, b.model),
    }
    notes += [f"another {n}: {x} and {y}" for n, (x, y) in pairs.items() if x != y]
    return tuple(notes)
