"""Counts and latencies of one served model, in memory and of bounded size."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BUCKETS_S", "ModelStatistics", "Stage"]

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
RECENT = 240


@dataclass(slots=True)
class Stage:
    """How often something was done, and for how long in all (nanoseconds)."""

    count: int = 0
    ns: int = 0

    def add(self, ns: int) -> None:
        """Once more."""
        self.count += 1
        self.ns += ns


@dataclass(slots=True)
class ModelStatistics:
    """Of one model; `record` is called by the threads that compute.

    ``buckets`` counts computations by upper bound (`BUCKETS_S`), the last one without. ``recent``
    holds (seconds since start of the service, latency in ms) of the newest requests.
    """

    stages: dict[str, Stage] = field(
        default_factory=lambda: {
            name: Stage()
            for name in (
                "success",
                "fail",
                "queue",
                "compute_input",
                "compute_infer",
                "compute_output",
            )
        }
    )
    rejected: int = 0
    expired: int = 0
    abandoned: int = 0
    last_inference_ms: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=RECENT))
    started: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, *, queue_ns: int, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """One inference that worked."""
        total = queue_ns + input_ns + infer_ns + output_ns
        with self.lock:
            for name, ns in (
                ("success", total),
                ("queue", queue_ns),
                ("compute_input", input_ns),
                ("compute_infer", infer_ns),
                ("compute_output", output_ns),
            ):
                self.stages[name].add(ns)
            self.buckets[bisect_left(BUCKETS_S, total / 1e9)] += 1
            self.recent.append((time.monotonic() - self.started, total / 1e6))
            self.last_inference_ms = int(time.time() * 1000)

    def record_failure(self, ns: int) -> None:
        """One that did not."""
        with self.lock:
            self.stages["fail"].add(ns)

    def mean_compute_s(self) -> float:
        """Of one computation so far; 0 before the first."""
        names = ("compute_input", "compute_infer", "compute_output")
        with self.lock:
            count = self.stages["compute_infer"].count
            return sum(self.stages[n].ns for n in names) / count / 1e9 if count else 0.0

    def document(self, name: str, version: str) -> dict[str, Any]:
        """As Triton's statistics extension has it."""
        with self.lock:
            stages = {k: {"count": s.count, "ns": s.ns} for k, s in self.stages.items()}
            return {
                "name": name,
                "version": version,
                "last_inference": self.last_inference_ms,
                "inference_count": stages["success"]["count"],
                "execution_count": stages["success"]["count"],
                "inference_stats": stages,
                "batch_stats": [],
                "rejected_count": self.rejected,
                "expired_count": self.expired,
                "abandoned_count": self.abandoned,
            }

    def snapshot(self) -> tuple[list[int], list[tuple[float, float]], dict[str, tuple[int, int]]]:
        """(buckets, recent, stages), consistent with one another."""
        with self.lock:
            stages = {k: (s.count, s.ns) for k, s in self.stages.items()}
            return list(self.buckets), list(self.recent), stages
