"""How long and how often: three presets, and what each scenario asks for.

The figures are those of MLPerf Mobile (mobile_app_open, tasks.pbtxt and run_mode.dart): rapid 64
queries and 6 s, quick 128 and 10 s with one minute of cool-down, full 1024 and 60 s with five.
The 99th percentile of ``multi_stream`` and ``server`` needs 662 queries (MLPerf Inference), which
only ``full`` makes; the others say so in place of a figure they cannot back.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgectl.benchmarking.records import Scenario

__all__ = ["METRIC_PERCENTILE", "PRESETS", "SCENARIOS", "Preset"]

SCENARIOS: tuple[Scenario, ...] = ("single_stream", "multi_stream", "offline", "server")
METRIC_PERCENTILE: dict[Scenario, float] = {
    "single_stream": 90.0,
    "multi_stream": 99.0,
    "server": 99.0,
}
SAMPLES_PER_QUERY = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Minima that a run must reach, and the time at which it is given up."""

    name: str
    queries: int
    offline_samples: int
    seconds: float
    max_seconds: float
    cooldown_s: float

    def minimum(self, scenario: Scenario) -> int:
        """Queries (samples for ``offline``)."""
        return self.offline_samples if scenario == "offline" else self.queries


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="rapid",
            queries=64,
            offline_samples=64,
            seconds=6.0,
            max_seconds=60.0,
            cooldown_s=0.0,
        ),
        Preset(
            name="quick",
            queries=128,
            offline_samples=1024,
            seconds=10.0,
            max_seconds=120.0,
            cooldown_s=60.0,
        ),
        Preset(
            name="full",
            queries=1024,
            offline_samples=24_576,
            seconds=60.0,
            max_seconds=600.0,
            cooldown_s=300.0,
        ),
    )
}
