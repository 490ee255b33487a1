"""Looks for the compile choices that make a model quickest on a board; never slower than before."""

from edgectl.tuning.evaluators import DeviceEvaluator, EstimateEvaluator, Evaluator
from edgectl.tuning.journal import Journal
from edgectl.tuning.search import Trial, TuneResult, tune
from edgectl.tuning.space import Candidate, axes_for
from edgectl.tuning.workshop import Workshop

__all__ = [
    "Candidate",
    "DeviceEvaluator",
    "EstimateEvaluator",
    "Evaluator",
    "Journal",
    "Trial",
    "TuneResult",
    "Workshop",
    "axes_for",
    "tune",
]
