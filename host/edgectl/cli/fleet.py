"""One model to several devices side by side: ``--device kitchen,attic``.

Each device gets a process of its own, so that one that hangs, asks or fails does not touch the
others. The model is built once for each target among them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgectl.cli.console import Output
from edgectl.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from edgectl.deployment import Timing

__all__ = ["Outcome", "deploy_to_each", "devices_of", "sending_words", "timing_words"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one device; ``document`` is what its deployment printed with ``--json``."""

    device: str
    exit_code: int
    document: dict[str, Any]


def devices_of(text: str | None) -> tuple[str, ...]:
    """The devices named by ``--device``, apart by commas.

    Raises:
        UsageError: one is named twice, or a name is empty.
    """
    if text is None or "," not in text:
        return () if text is None else (text,)
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise UsageError(f"{text!r} names an empty device", next_step="edgectl device list")
    if len(set(names)) != len(names):
        raise UsageError(f"{text!r} names a device twice")
    return names


def timing_words(timing: Timing) -> list[str]:
    """A `Timing` as it is spelled on the command line."""
    words = ["--iterations", str(timing.iterations), "--warmup", str(timing.warmup_iterations)]
    words += ["--min-seconds", str(timing.min_seconds)]
    if timing.threads is not None:
        words += ["--threads", str(timing.threads)]
    if timing.cpu_affinity is not None:
        words += ["--cpu-affinity", ",".join(map(str, timing.cpu_affinity))]
    return words


def sending_words(
    *,
    accept_new_host_key: bool,
    ssh_timeout_s: float,
    dry_run: bool,
    bytes_per_s: float | None,
    allow_older: bool,
) -> list[str]:
    """How a bundle is sent, as it is spelled on the command line."""
    words = ["--ssh-timeout", str(ssh_timeout_s)]
    words += ["--accept-new-host-key"] if accept_new_host_key else []
    words += ["--dry-run"] if dry_run else []
    words += ["--allow-older"] if allow_older else []
    words += ["--bandwidth-limit", str(bytes_per_s)] if bytes_per_s is not None else []
    return words


def deploy_to_each(bundles: Mapping[str, Path], words: Sequence[str], output: Output) -> int:
    """Deploys to all devices at once and prints what became of each.

    Args:
        bundles: the bundle for each device.
        words: further options of ``edgectl deploy``, the same for all.
        output: where it is printed; with ``--json`` as ``{"devices": [...]}``.

    Returns:
        the exit code: 0, or that of the first device in order that failed.
    """
    processes = {
        device: subprocess.Popen(
            [
                *(sys.executable, "-m", "edgectl.cli.main", "deploy", str(bundle)),
                *("--device", device, "--json", *words),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for device, bundle in bundles.items()
    }
    found: dict[str, Outcome] = {}

    def follow(device: str, process: subprocess.Popen[bytes]) -> None:
        out, _ = process.communicate()
        found[device] = Outcome(
            device=device, exit_code=process.returncode, document=_document(out)
        )
        output.say(f"{device}: {_summary(found[device])}")

    threads = [threading.Thread(target=follow, args=item) for item in processes.items()]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        # They were interrupted from the terminal as well, and clean up on their devices.
        for process in processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=30.0)
            process.kill()
        raise
    outcomes = [found[device] for device in bundles]
    output.result(
        {"devices": [asdict(outcome) for outcome in outcomes]},
        lambda console: _print(console, outcomes),
    )
    return next((o.exit_code for o in outcomes if o.exit_code != 0), 0)


def _document(out: bytes) -> dict[str, Any]:
    try:
        document = json.loads(out)
    except ValueError:
        return {"error": {"message": "its process ended without a word", "next_step": None}}
    return document if isinstance(document, dict) else {}


def _summary(outcome: Outcome) -> str:
    error = outcome.document.get("error")
    if error is not None:
        return f"failed with exit code {outcome.exit_code}: {error.get('message')}"
    if "plan" in outcome.document:
        plan = outcome.document["plan"]
        total = plan["runtime_bytes"] + plan["payload_bytes"]
        return f"would get {total:,} bytes; nothing was changed"
    return "done" if outcome.exit_code == 0 else f"failed with exit code {outcome.exit_code}"


def _print(console: Console, outcomes: Sequence[Outcome]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("device", "result", "release", "bytes sent", "p50 ms")
    for outcome in outcomes:
        document = outcome.document
        latency = (document.get("report") or {}).get("latency") or {}
        sent = document.get("payload_bytes_sent")
        runtime = document.get("runtime_bytes_sent") or 0
        label = " (emulated)" if document.get("emulated") else ""
        cells = (
            outcome.device,
            _summary(outcome),
            str(document.get("release") or ""),
            "" if sent is None else f"{sent + runtime:,}",
            f"{latency['p50_ms']:.2f}{label}" if "p50_ms" in latency else "",
        )
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
