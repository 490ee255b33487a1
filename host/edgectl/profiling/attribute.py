"""From dispatch events to milliseconds by call of the program, and so by layer."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from edgectl.errors import DeviceError
from edgectl.profiling.trace import DispatchEvent
from edgectl.records import DispatchCall

__all__ = ["CallTime", "attribute", "exclusive_ns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTime:
    """What one call of the program took in one inference, on average over all of them."""

    call: DispatchCall
    mean_ms: float
    min_ms: float
    max_ms: float


def attribute(
    events: Sequence[DispatchEvent], calls: Sequence[DispatchCall], *, inferences: int
) -> tuple[CallTime, ...]:
    """Times by call, in program order, over the last inferences; those before were to warm up.

    Events are told apart by their dispatch's name, and where calls share one by their order: the
    runtime begins them in the order of the program. Where dispatches run at the same time, each
    instant is shared out equally, so that the times add up to what passed.

    Args:
        events: of ``inferences`` inferences at least, by start.
        calls: `Program.calls`; those without a function run once, when the module is loaded.
        inferences: how many count.

    Raises:
        DeviceError: the events are not those of these calls.
    """
    calls = [*calls] or _calls_of(events)
    once = collections.Counter(c.symbol for c in calls if not c.function)
    spent: dict[str, list[float]] = collections.defaultdict(list)
    for event, share in zip(events, exclusive_ns(events), strict=True):
        if once[event.symbol] > 0:  # what the module does at its start comes first
            once[event.symbol] -= 1
        else:
            spent[event.symbol].append(share / 1e6)
    places: dict[str, list[int]] = collections.defaultdict(list)
    for index, call in enumerate(calls):
        if call.function:
            places[call.symbol].append(index)
    made = {symbol: len(t) / max(1, len(places[symbol])) for symbol, t in spent.items()}
    total = max(made.values())
    for symbol, owners in places.items():
        if not owners or made.get(symbol) != total or total < inferences:
            raise _other_program(symbol)
    result = []
    for index, call in enumerate(calls):
        if call.function:
            owners = places[call.symbol]
            times = spent[call.symbol][owners.index(index) :: len(owners)][-inferences:]
            mean = sum(times) / inferences
            result.append(CallTime(call=call, mean_ms=mean, min_ms=min(times), max_ms=max(times)))
    return tuple(result)


def exclusive_ns(events: Sequence[DispatchEvent]) -> list[float]:
    """Each event's share of the time that passed: an instant with n of them counts 1/n for each."""
    edges = sorted({t for event in events for t in (event.start_ns, event.end_ns)})
    spent = [0.0] * len(events)
    order = sorted(range(len(events)), key=lambda i: events[i].start_ns)
    running: list[int] = []
    following = 0
    for left, right in itertools.pairwise(edges):
        running = [i for i in running if events[i].end_ns > left]
        while following < len(order) and events[order[following]].start_ns <= left:
            if events[order[following]].end_ns > left:
                running.append(order[following])
            following += 1
        for i in running:
            spent[i] += (right - left) / len(running)
    return spent


def _calls_of(events: Sequence[DispatchEvent]) -> list[DispatchCall]:
    """Calls without names, for a bundle that has no table: as one inference makes them."""
    rarest = min(collections.Counter(event.symbol for event in events).values())
    return [
        DispatchCall(
            function="main",
            symbol=event.symbol,
            module="",
            operator="",
            nodes=(),
            read_bytes=0,
            written_bytes=0,
        )
        for event in events[: len(events) // rarest]
    ]


def _other_program(symbol: str) -> DeviceError:
    return DeviceError(
        f"The profile does not fit the bundle: {symbol!r} did not run as often as the program "
        "calls it.",
        cause="The program has loops or branches, or the device ran something else.",
        next_step="Make the bundle again with this edgectl, and profile that.",
    )
