"""What a model will cost on a board without any board: a model of it, never a measurement."""

from edgectl.estimation.calibration import (
    Calibration,
    calibrate,
    check_profile,
    load_calibration,
    recalculated,
    save_calibration,
)
from edgectl.estimation.estimate import Estimate, LayerEstimate, estimate_bundle
from edgectl.estimation.fits import Fit, StaticCost, static_cost

__all__ = [
    "Calibration",
    "Estimate",
    "Fit",
    "LayerEstimate",
    "StaticCost",
    "calibrate",
    "check_profile",
    "estimate_bundle",
    "load_calibration",
    "recalculated",
    "save_calibration",
    "static_cost",
]
