"""What a candidate costs: by estimate, or measured on a device. Wrong outputs have no cost."""

from __future__ import annotations

import statistics
from typing import Protocol

from edgectl.deployment import Timing, deploy, mismatch
from edgectl.errors import OutputMismatchError
from edgectl.estimation import estimate_bundle, load_calibration
from edgectl.hooks import Hooks
from edgectl.installing import Sending
from edgectl.records import Bundle
from edgectl.remote import Device
from edgectl.settings import Settings
from edgectl.tuning.space import Candidate

__all__ = ["DeviceEvaluator", "EstimateEvaluator", "Evaluator"]


class Evaluator(Protocol):
    """Puts a number on a candidate's bundle; less is better."""

    @property
    def name(self) -> str:
        """Method and place, as part of a trial's identity."""
        ...

    @property
    def unit(self) -> str:
        """Of the costs."""
        ...

    def cost(self, bundle: Bundle, candidate: Candidate) -> float:
        """The cost.

        Raises:
            OutputMismatchError: the program computes something else than PyTorch.
        """
        ...

    def duel(
        self, one: tuple[Bundle, Candidate], other: tuple[Bundle, Candidate]
    ) -> tuple[float, float]:
        """Costs of two candidates under the same conditions."""
        ...


class EstimateEvaluator:
    """Modelled milliseconds on one core. They repeat, so a duel needs no second look."""

    def __init__(self, target: str, settings: Settings, hooks: Hooks):
        self._settings = settings
        self._hooks = hooks
        calibration = load_calibration(target, settings)
        self._weights = calibration.weights if calibration is not None else None
        self.name = f"estimate {self._weights}"
        self.unit = "modelled ms"

    def cost(self, bundle: Bundle, candidate: Candidate) -> float:
        """See `Evaluator`."""
        del candidate
        estimate = estimate_bundle(
            bundle, weights=self._weights, settings=self._settings, hooks=self._hooks
        )
        return estimate.milliseconds

    def duel(
        self, one: tuple[Bundle, Candidate], other: tuple[Bundle, Candidate]
    ) -> tuple[float, float]:
        """See `Evaluator`."""
        return self.cost(*one), self.cost(*other)


class DeviceEvaluator:
    """Median latency on a device. A duel takes turns, so that neither has the cooler board."""

    rounds = 3

    def __init__(
        self, device: Device, settings: Settings, hooks: Hooks, *, iterations: int, warmup: int = 3
    ):
        self._device = device
        self._settings = settings
        self._hooks = hooks
        self._iterations = iterations
        self._warmup = warmup
        self.name = f"device {device.label} {iterations}"
        self.unit = "ms (emulated)" if device.emulated else "ms"

    def cost(self, bundle: Bundle, candidate: Candidate) -> float:
        """See `Evaluator`."""
        return statistics.median(self._latencies(bundle, candidate))

    def duel(
        self, one: tuple[Bundle, Candidate], other: tuple[Bundle, Candidate]
    ) -> tuple[float, float]:
        """See `Evaluator`."""
        found: tuple[list[float], list[float]] = ([], [])
        for _ in range(self.rounds):
            for latencies, side in zip(found, (one, other), strict=True):
                latencies += self._latencies(*side)
        return statistics.median(found[0]), statistics.median(found[1])

    def _latencies(self, bundle: Bundle, candidate: Candidate) -> tuple[float, ...]:
        timing = Timing(
            iterations=self._iterations,
            warmup_iterations=self._warmup,
            threads=candidate.threads,
        )
        deployment = deploy(
            bundle,
            self._device,
            timing=timing,
            sending=Sending(allow_downgrade=True),  # candidates come in any order
            settings=self._settings,
            hooks=self._hooks,
        )
        error = mismatch(deployment.report)
        if error is not None:
            raise error
        if not deployment.report.latencies_ms:
            raise OutputMismatchError("The device gave no latency.")
        return deployment.report.latencies_ms
