"""Benchmarks as files."""

from __future__ import annotations

import json
import re
from pathlib import Path

from edgectl.benchmarking.records import BenchmarkReport
from edgectl.errors import UsageError
from edgectl.settings import Settings
from edgectl_runner.contract import ContractError, from_document, to_document

__all__ = ["history_of", "is_report", "keep", "read_report"]


def is_report(path: str) -> bool:
    """Whether this is a file that begins as a JSON object."""
    try:
        with Path(path).open("rb") as file:
            return file.read(64).lstrip()[:1] == b"{"
    except OSError:
        return False


def read_report(path: Path) -> BenchmarkReport:
    """What ``edgectl bench --json`` wrote.

    Raises:
        UsageError: it is not there, no JSON, another document, or of another version.
    """
    again = f"Make one with: edgectl bench MODEL --json > {path.name}"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", next_step=again) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is not JSON: {error}.",
            cause="It was cut short, or holds something besides the document.",
            next_step=again,
        ) from error
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind != "benchmark":
        raise UsageError(
            f"{path} is no benchmark{f' but a {kind}' if isinstance(kind, str) else ''}.",
            next_step=again,
        )
    try:
        report = from_document(BenchmarkReport, document)
    except ContractError as error:
        raise UsageError(
            f"{path} is not a benchmark that this edgectl reads: {error}.",
            cause="Another version of edgectl wrote it, or it was changed.",
            next_step=again,
        ) from error
    if not report.runs or not all(run.latencies_ms for run in report.runs):
        raise UsageError(f"{path} holds no latencies.", next_step=again)
    return report


def keep(report: BenchmarkReport, settings: Settings) -> Path:
    """Adds a report to what `history_of` finds; the file's name begins with its time."""
    folder = _folder(report.model, settings)
    folder.mkdir(parents=True, exist_ok=True)
    stamp = re.sub(r"[^0-9T]", "", report.created)[:15]
    path = folder / f"{stamp}-{report.provenance.release}.json"
    path.write_text(json.dumps(to_document(report)), encoding="utf-8")
    return path


def history_of(model: str, settings: Settings) -> tuple[BenchmarkReport, ...]:
    """All kept reports of a model, oldest first; damaged files are passed over."""
    found = []
    for path in sorted(_folder(model, settings).glob("*.json")):
        try:
            found.append(read_report(path))
        except UsageError:
            continue
    return tuple(found)


def _folder(model: str, settings: Settings) -> Path:
    return settings.state_dir / "benchmarks" / re.sub(r"[^\w.-]", "_", model)
