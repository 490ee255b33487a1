"""ExportedModel -> QuantizedModel.

quantized = quantize(model, "int8", "photos/", quality="best")
print(quantized.report["against_float"], quantized.report["integer_macs_share"])
"""

from __future__ import annotations

from edgectl.quantization.data import CalibrationData, calibration_data
from edgectl.quantization.quantizer import quantize
from edgectl.quantization.recipe import RECIPES, Quality, Recipe, recipe_of

__all__ = [
    "RECIPES",
    "CalibrationData",
    "Quality",
    "Recipe",
    "calibration_data",
    "quantize",
    "recipe_of",
]
