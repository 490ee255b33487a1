"""A light thread that looks at the board while a model runs: heat, clock, throttling, company.

    with Tracer(interval_s=0.5) as tracer:
        tracer.start_clock()
        ...
    tracer.points

A look takes a few milliseconds of another core, so it is taken twice a second and not oftener.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Self

from edgectl_runner.contract import SystemSample, TracePoint, from_document
from edgectl_runner.system_facts import sample

__all__ = ["Tracer", "busy_seconds"]


class Tracer:
    """Looks at the board at regular times; `points` has what it saw."""

    def __init__(self, *, interval_s: float, root: str = "/"):
        self._interval_s = interval_s
        self._root = root
        self._points: list[TracePoint] = []
        self._begin_ns = time.perf_counter_ns()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look_often, name="tracer", daemon=True)
        self._before = self._work()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def start_clock(self) -> None:
        """Timing begins now; points taken before have a negative time."""
        now = time.perf_counter_ns()
        shift_s = (now - self._begin_ns) / 1e9
        self._begin_ns = now
        self._points = [_moved(p, shift_s) for p in self._points]

    @property
    def points(self) -> tuple[TracePoint, ...]:
        """What was seen, in order."""
        return tuple(self._points)

    def _look_often(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._look()

    def _look(self) -> None:
        begin_ns = self._begin_ns
        seen = from_document(SystemSample, sample(self._root))
        self._points.append(
            TracePoint(
                time_s=round((time.perf_counter_ns() - begin_ns) / 1e9, 3),
                temperature_celsius=seen.temperature_celsius,
                cpu_frequency_mhz=seen.cpu_frequency_mhz,
                throttle_flags=seen.throttle_flags,
                other_load=self._other_load(),
            )
        )

    def _other_load(self) -> float | None:
        now = self._work()
        before, self._before = self._before, now
        if now is None or before is None or now[0] <= before[0]:
            return None
        elapsed, all_work, own = (b - a for a, b in zip(before, now, strict=True))
        return round(max(0.0, all_work - own) / elapsed, 3)

    def _work(self) -> tuple[float, float, float] | None:
        """Now, and the seconds of work that all processors and this process have done."""
        busy = busy_seconds(self._root)
        if busy is None:
            return None
        times = os.times()
        own = times.user + times.system + times.children_user + times.children_system
        return time.perf_counter(), busy, own


def busy_seconds(root: str = "/") -> float | None:
    """Seconds of work of all processors since the start, from ``/proc/stat``."""
    try:
        words = Path(root, "proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
        # user, nice, system, idle, iowait, irq, softirq, steal; guests are inside user.
        ticks = [int(word) for word in words[1:9]]
        return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _moved(point: TracePoint, shift_s: float) -> TracePoint:
    return TracePoint(
        time_s=round(point.time_s - shift_s, 3),
        temperature_celsius=point.temperature_celsius,
        cpu_frequency_mhz=point.cpu_frequency_mhz,
        throttle_flags=point.throttle_flags,
        other_load=point.other_load,
    )
