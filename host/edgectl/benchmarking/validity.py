"""Whether a run may be quoted: throttling, sagging supply, a falling clock, other work.

Bits of the firmware's ``get_throttled``: 0 under-voltage, 1 frequency capped, 2 throttled, 3 soft
temperature limit, all of this moment; 16 to 19 the same since the board was started. So a bit of
the second kind that appears during a run tells of something between two looks.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgectl.benchmarking.records import Scenario
from edgectl_runner.contract import LoadResult, SystemSample, TracePoint

__all__ = ["judge"]

_BITS = {
    0: "the supply voltage was too low",
    1: "the firmware capped the clock",
    2: "the board was throttled",
    3: "the board reached its soft temperature limit",
}
HOT_CELSIUS = 80.0
"""Where the firmware of every Pi begins to slow down."""
CLOCK_DROP = 0.05
OTHER_LOAD = 0.25
"""Mean work of others, in processors, above which a run counts as disturbed: a Pi without a
desktop spends 0.01 to 0.03 on itself."""


def judge(
    load: LoadResult, before: SystemSample, after: SystemSample
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Why a run is invalid (empty when it is not), and what could not be found out."""
    trace = [point for point in load.trace if point.time_s >= 0]
    flags = [point.throttle_flags for point in load.trace]
    reasons = _throttling(before.throttle_flags, [*flags, after.throttle_flags])
    reasons += _clock(trace, load.plan.scenario) + _heat(load.trace, after)
    busy = [point.other_load for point in trace if point.other_load is not None]
    if busy and sum(busy) / len(busy) > OTHER_LOAD:
        reasons.append(
            f"other programs kept {sum(busy) / len(busy):.1f} processors busy during the run"
        )
    if not load.stable:
        reasons.append("the latency never settled during the warm-up")
    if not load.complete:
        reasons.append(
            f"it was given up after {load.duration_s:.0f} s, with {len(load.starts_ms)} of "
            f"{load.plan.min_queries} queries and {load.plan.min_seconds:g} s asked for"
        )
    return tuple(reasons), _unknown(before, after, busy)


def _throttling(before: int | None, flags: Sequence[int | None]) -> list[str]:
    known = [f for f in (before, *flags) if f is not None]
    now = 0
    for value in known:
        now |= value & 0xF
    since = 0
    if before is not None:
        for value in known:
            since |= value & ~before & 0xF0000
    return [text for bit, text in _BITS.items() if now >> bit & 1 or since >> (bit + 16) & 1]


def _clock(trace: Sequence[TracePoint], scenario: Scenario) -> list[str]:
    # Between the queries of a server the governor may lower the clock, as it does in service.
    clocks = [max(p.cpu_frequency_mhz) for p in trace if p.cpu_frequency_mhz]
    if scenario == "server" or not clocks or min(clocks) >= (1 - CLOCK_DROP) * max(clocks):
        return []
    return [f"the clock fell from {max(clocks):.0f} to {min(clocks):.0f} MHz during the run"]


def _heat(trace: Sequence[TracePoint], after: SystemSample) -> list[str]:
    seen = [p.temperature_celsius for p in trace] + [after.temperature_celsius]
    hottest = max((t for t in seen if t is not None), default=0.0)
    if hottest < HOT_CELSIUS:
        return []
    return [f"the board reached {hottest:.0f} C, where a Pi slows down"]


def _unknown(before: SystemSample, after: SystemSample, busy: Sequence[float]) -> tuple[str, ...]:
    notes = []
    if before.throttle_flags is None and after.throttle_flags is None:
        notes.append("the board does not tell whether it was throttled")
    elif (before.throttle_flags or 0) & 0xF0000:
        notes.append(
            f"before the run the firmware already told of trouble since the board was started "
            f"(0x{before.throttle_flags or 0:x})"
        )
    if after.temperature_celsius is None:
        notes.append("the board does not tell its temperature")
    if not after.cpu_frequency_mhz:
        notes.append("the board does not tell its clock")
    if after.governor not in (None, "performance"):
        notes.append(f"the clock's governor is {after.governor}, not performance")
    if not busy:
        notes.append("the board does not tell what else was running")
    return tuple(notes)
