"""Fits the model of the memory to a real board's profile, and keeps what was found.

    edgectl profile model.edgectl --device kitchen --threads 1 --json > profile.json
    edgectl estimate model.edgectl --calibrate profile.json

Later estimates for that target then use the fitted weights, and say so.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgectl.errors import ConfigurationError, UsageError
from edgectl.estimation.estimate import Estimate
from edgectl.estimation.memory_model import Weights, cycles_of, fit
from edgectl.settings import Settings
from edgectl_runner.contract import ContractError, from_document, to_document
from edgectl_toolchains import load_target

__all__ = [
    "Calibration",
    "calibrate",
    "check_profile",
    "load_calibration",
    "recalculated",
    "save_calibration",
]

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Weights for a target, and how well they fit.

    ``mean_error`` is the mean over the layers of |estimate - profile|, relative to the mean layer,
    ``mean_error_before`` that of the rules of thumb. ``total_error`` is signed and of the sum.
    """

    schema_version: int = _VERSION
    target: str
    source: str
    weights: Weights
    layers: int
    mean_error: float
    mean_error_before: float
    total_error: float


def calibrate(estimate: Estimate, profile: Mapping[str, Any], *, source: str) -> Calibration:
    """Fits the weights to a profile of the same bundle.

    Args:
        estimate: of the bundle.
        profile: what `edgectl profile --json` printed.
        source: where the profile comes from, for people to read.

    Raises:
        UsageError: it is no profile, or of another bundle or board, of more than one thread, or
            made on a virtual board, whose times are not a board's.
    """
    symbols, measured_ms = check_profile(profile, estimate.target, source=source)
    if symbols != [layer.call.symbol for layer in estimate.layers]:
        raise _unfit(source, "it is of another bundle: its dispatches are not the same")
    hertz = load_target(estimate.target).clock_mhz * 1e6
    cycles = [ms * 1e-3 * hertz for ms in measured_ms]
    terms = [layer.terms for layer in estimate.layers]
    weights = fit(terms, cycles)
    fitted = [cycles_of(t, weights) for t in terms]
    return Calibration(
        target=estimate.target,
        source=source,
        weights=weights,
        layers=len(cycles),
        mean_error=_error(fitted, cycles),
        mean_error_before=_error([layer.cycles for layer in estimate.layers], cycles),
        total_error=sum(fitted) / sum(cycles) - 1,
    )


def check_profile(
    profile: Mapping[str, Any], target: str, *, source: str
) -> tuple[list[str], list[float]]:
    """The dispatches of a profile that can calibrate estimates for a target, and their times in ms.

    Raises:
        UsageError: it cannot; see `calibrate`.
    """
    try:
        layers: Sequence[Mapping[str, Any]] = profile["layers"]
        symbols = [str(layer["symbol"]) for layer in layers]
        measured_ms = [float(layer["mean_ms"]) for layer in layers]
        board, threads = str(profile["target"]), int(profile["threads"])
        emulated = bool(profile["emulated"])
    except (KeyError, TypeError, ValueError) as error:
        reason = f"it is not what `edgectl profile --json` prints ({error!r})"
        raise _unfit(source, reason) from error
    if emulated:
        raise _unfit(source, "it was made on a virtual board, whose times are not a board's")
    if board != target:
        raise _unfit(source, f"it is of {board}, the estimate of {target}")
    if threads != 1:
        raise _unfit(source, f"it was made with {threads} threads; the model is of one core")
    return symbols, measured_ms


def save_calibration(calibration: Calibration, settings: Settings) -> Path:
    """Keeps it for later estimates of its target."""
    file = _file(calibration.target, settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".part")
    partial.write_text(json.dumps(to_document(calibration), indent=1) + "\n", encoding="utf-8")
    partial.replace(file)
    return file


def load_calibration(target: str, settings: Settings) -> Calibration | None:
    """What was kept for a target, if anything.

    Raises:
        ConfigurationError: the file is there and cannot be read.
    """
    file = _file(target, settings)
    if not file.exists():
        return None
    try:
        return from_document(Calibration, json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, ContractError) as error:
        raise ConfigurationError(
            f"The calibration {file} cannot be read: {error}.",
            cause="It was edited, or written by another version of edgectl.",
            next_step=f"Remove it, and calibrate again: edgectl estimate MODEL --target {target} "
            "--calibrate PROFILE",
        ) from error


def recalculated(estimate: Estimate, calibration: Calibration) -> Estimate:
    """The estimate with the calibration's weights."""
    layers = tuple(
        dataclasses.replace(layer, cycles=cycles_of(layer.terms, calibration.weights))
        for layer in estimate.layers
    )
    total = sum(layer.cycles for layer in layers) + estimate.runtime_cycles
    return dataclasses.replace(
        estimate,
        layers=layers,
        cycles=total,
        milliseconds=total / (load_target(estimate.target).clock_mhz * 1e3),
        weights=calibration.weights,
        calibrated=calibration.source,
    )


def _file(target: str, settings: Settings) -> Path:
    return settings.state_dir / "calibration" / f"{target}.json"


def _error(estimated: Sequence[float], measured: Sequence[float]) -> float:
    return sum(abs(e - m) for e, m in zip(estimated, measured, strict=True)) / sum(measured)


def _unfit(source: str, reason: str) -> UsageError:
    return UsageError(
        f"{source} cannot calibrate this estimate: {reason}.",
        cause="A calibration compares the same bundle, layer by layer, on one core.",
        next_step="edgectl profile BUNDLE --device DEVICE --threads 1 --json > profile.json",
    )
