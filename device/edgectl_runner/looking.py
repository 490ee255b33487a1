"""Looks at the board at regular times, in a process of its own, until standard input ends.

Of its own, because a thread would take the interpreter's lock from the one that reads the clock:
a look takes milliseconds of Python, and those would be counted as the model's. Only the standard
library is imported.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from pathlib import Path

from edgectl_runner.system_facts import sample

__all__ = ["busy_seconds", "main", "process_seconds"]


def main(interval_s: float, watched: int, root: str) -> None:
    """Prints one JSON line for each look; ``watched`` is the process whose work is not others'."""
    os.nice(5)  # the model goes first where both want the same core
    before: Work | None = None  # so the first look, taken at once, tells no work
    wait_s, ended = 0.0, False
    while not ended:
        ended = bool(select.select([0], [], [], wait_s)[0])
        wait_s = interval_s
        seen = sample(root)
        now = _work(watched, root)
        point = {
            "at_ns": time.perf_counter_ns(),
            "temperature_celsius": seen["temperature_celsius"],
            "cpu_frequency_mhz": seen["cpu_frequency_mhz"],
            "throttle_flags": seen["throttle_flags"],
            "other_load": _other_load(before, now),
        }
        before = now
        sys.stdout.write(json.dumps(point) + "\n")
        sys.stdout.flush()


Work = tuple[float, float, float]
"""Now, the work of all processors, and that of the model and of this process, in seconds."""


def _work(watched: int, root: str) -> Work | None:
    busy, own = busy_seconds(root), process_seconds(watched)
    if busy is None or own is None:
        return None
    times = os.times()
    looking = times.user + times.system + times.children_user + times.children_system
    return time.perf_counter(), busy, own + looking


def _other_load(before: Work | None, now: Work | None) -> float | None:
    if before is None or now is None or now[0] <= before[0]:
        return None
    elapsed, all_work, own = (b - a for a, b in zip(before, now, strict=True))
    return round(max(0.0, all_work - own) / elapsed, 3)


def busy_seconds(root: str = "/") -> float | None:
    """Seconds of work of all processors since the start, from ``/proc/stat``."""
    try:
        words = Path(root, "proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
        # user, nice, system, idle, iowait, irq, softirq, steal; guests are inside user.
        ticks = [int(word) for word in words[1:9]]
        return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def process_seconds(process: int) -> float | None:
    """Seconds of work of a process and its threads, from ``/proc/PID/stat``."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
        words = text.rpartition(")")[2].split()  # the name before may hold anything
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
