"""``/metrics`` in Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Sequence

from edgectl_runner.service.served_model import ServedModel
from edgectl_runner.service.state import resident_bytes
from edgectl_runner.service.statistics import BUCKETS_S
from edgectl_runner.system_facts import sample

__all__ = ["METRICS_TYPE", "render_metrics"]

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render_metrics(models: Sequence[ServedModel], *, ready: bool, internal_errors: int) -> str:
    """All metrics; what the board does not tell is left out."""
    lines: list[str] = []
    _family(lines, "edgectl_ready", "gauge", "1 when requests are served.", [("", int(ready))])
    _family(
        lines,
        "edgectl_internal_errors_total",
        "counter",
        "Requests answered with 500.",
        [("", internal_errors)],
    )
    _requests(lines, models)
    _durations(lines, models)
    _family(
        lines,
        "edgectl_queue_depth",
        "gauge",
        "Requests that wait.",
        [(_labels(m), m.queue_depth) for m in models],
    )
    _family(
        lines,
        "edgectl_sessions",
        "gauge",
        "Open sessions of stateful models.",
        [(_labels(m), m.session_count) for m in models],
    )
    _family(
        lines, "process_resident_memory_bytes", "gauge", "Memory in use.", [("", resident_bytes())]
    )
    board = sample()
    for name, kind, text, value in (
        ("edgectl_temperature_celsius", "gauge", "Of the core.", board["temperature_celsius"]),
        ("edgectl_throttle_flags", "gauge", "Firmware's get_throttled.", board["throttle_flags"]),
        ("edgectl_load_1min", "gauge", "Load average.", board["load_1min"]),
        (
            "edgectl_memory_available_bytes",
            "gauge",
            "Of the whole board.",
            board["memory_available_bytes"],
        ),
    ):
        if isinstance(value, int | float):
            _family(lines, name, kind, text, [("", value)])
    return "\n".join(lines) + "\n"


def _requests(lines: list[str], models: Sequence[ServedModel]) -> None:
    values: list[tuple[str, float]] = []
    for model in models:
        _, _, stages = model.statistics.snapshot()
        for outcome, count in (
            ("success", stages["success"][0]),
            ("failed", stages["fail"][0]),
            ("rejected", model.statistics.rejected),
            ("expired", model.statistics.expired),
        ):
            values.append((_labels(model, f'outcome="{outcome}"'), count))
    _family(lines, "edgectl_inference_requests_total", "counter", "Requests by outcome.", values)


def _durations(lines: list[str], models: Sequence[ServedModel]) -> None:
    name = "edgectl_inference_duration_seconds"
    lines += [f"# HELP {name} Queue and computation.", f"# TYPE {name} histogram"]
    for model in models:
        buckets, _, stages = model.statistics.snapshot()
        total = 0
        for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), buckets, strict=True):
            total += count
            le = f'le="{bound}"'
            lines.append(f"{name}_bucket{_labels(model, le)} {total}")
        lines.append(f"{name}_sum{_labels(model)} {stages['success'][1] / 1e9!r}")
        lines.append(f"{name}_count{_labels(model)} {total}")


def _labels(model: ServedModel, more: str = "") -> str:
    # Names of models are letters, digits, '.', '_' and '-': nothing to escape.
    own = f'model="{model.name}",version="{model.version}"'
    return "{" + (f"{own},{more}" if more else own) + "}"


def _family(
    lines: list[str], name: str, kind: str, text: str, values: Sequence[tuple[str, float]]
) -> None:
    lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{labels} {value!r}" for labels, value in values]
