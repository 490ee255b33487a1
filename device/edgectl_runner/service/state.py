"""What the page shows, as one document: the models, their newest latencies, and the board."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgectl_runner import __version__
from edgectl_runner.process_facts import is_emulated
from edgectl_runner.service.served_model import ServedModel
from edgectl_runner.system_facts import sample

__all__ = ["describe_service", "resident_bytes"]

_STARTED = time.monotonic()


def describe_service(models: Sequence[ServedModel], *, ready: bool) -> dict[str, Any]:
    """Seconds are the service's own clock, which begins at its start."""
    return {
        "version": __version__,
        "ready": ready,
        "emulated": is_emulated(),
        "uptime_s": round(time.monotonic() - _STARTED, 3),
        "resident_bytes": resident_bytes(),
        "system": sample(),
        "models": [_model(model) for model in models],
    }


def _model(model: ServedModel) -> dict[str, Any]:
    _, recent, stages = model.statistics.snapshot()
    return {
        "name": model.name,
        "version": model.version,
        "release": model.release,
        "target": model.manifest.target,
        "precision": model.manifest.precision,
        "stateful": bool(model.entry.states),
        "contexts": model.contexts,
        "queue_depth": model.queue_depth,
        "queue_capacity": model.limits.queue_capacity,
        "sessions": model.session_count,
        "success": stages["success"][0],
        "failed": stages["fail"][0],
        "rejected": model.statistics.rejected,
        "expired": model.statistics.expired,
        "clock_s": round(time.monotonic() - model.statistics.started, 3),
        "recent": [[round(at, 3), round(ms, 3)] for at, ms in recent],
    }


def resident_bytes() -> int:
    """Memory of this process (VmRSS)."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * 4096
