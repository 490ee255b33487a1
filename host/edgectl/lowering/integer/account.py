"""What became of a quantized model: how much of the program that is compiled is integer.

The quantizer plans; the folding does. What users are told, and what ``--require-int8`` is held
against, is counted on the folded program.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from edgectl.errors import UnsupportedModelError
from edgectl.lowering.integer.coverage import IntegerCoverage, integer_coverage
from edgectl.quantization.accuracy import compare_outputs
from edgectl.records import ExportedModel, QuantizedModel
from edgectl.sources.tensors import to_tensor
from edgectl_runner.contract import GoldenLimits

__all__ = ["PREQUANTIZED", "account_for", "account_for_prequantized"]

PREQUANTIZED = "prequantized"
_LIMITS = GoldenLimits(max_relative_error=None, min_sqnr_db=40.0)
# Integers and fake quantization round a few sums differently, which is far above this; below it
# they are not the same model.
_LEAST_SQNR_DB = 15.0


def account_for(
    quantized: QuantizedModel, folded: ExportedModel, *, require_int8: float | None = None
) -> QuantizedModel:
    """``quantized`` with the coverage of the folded program in its report.

    Raises:
        UnsupportedModelError: fewer integer multiply-accumulates than ``require_int8`` (0 to 1).
    """
    if folded.imported is not None:
        return quantized
    coverage = integer_coverage(folded.program)
    if require_int8 is not None and coverage.macs_share < require_int8:
        floats = [f"{i.module or i.node}: {i.macs:,} MACs" for i in coverage.islands if i.macs]
        raise UnsupportedModelError(
            f"Only {100 * coverage.macs_share:.1f} % of the multiply-accumulates are int8; "
            f"{100 * require_int8:.1f} % are required.",
            cause="These stay float: " + "; ".join(floats[:8]),
            next_step="Lower the share that --require-int8 asks for, or change these layers.",
        )
    return dataclasses.replace(quantized, report={**quantized.report, **_document(coverage)})


def account_for_prequantized(model: ExportedModel, folded: ExportedModel) -> QuantizedModel:
    """The record of a model that came quantized (``model``) and of its integer form.

    Raises:
        UnsupportedModelError: the integer form computes something else than the model did.
    """
    exact, got = _float_outputs(model), _float_outputs(folded)
    found = compare_outputs(exact, got)
    if found.sqnr_db < _LEAST_SQNR_DB:
        raise UnsupportedModelError(
            f"The integer form of {model.name} agrees with it to {found.sqnr_db:.1f} dB only.",
            cause="Its quantize and dequantize operators are used in a way that has no integer "
            "form here.",
            next_step="Deploy the float model with --quantize int8 and --calibration instead.",
        )
    return QuantizedModel(
        model=folded,
        float_model=model,
        recipe_name=PREQUANTIZED,
        recipe={"name": PREQUANTIZED},
        report={
            "calibration": "none; the model came quantized",
            "reference": "the model as it came",
            "warnings": [],
            "layers": [],
            "against_float": found.to_document(),
            **_document(integer_coverage(folded.program)),
        },
        limits=_LIMITS,
    )


def _float_outputs(model: ExportedModel) -> list[list[torch.Tensor]]:
    return [
        [to_tensor(v).float() for v in call.outputs if hasattr(v, "dtype")] for call in model.calls
    ]


def _document(coverage: IntegerCoverage) -> dict[str, Any]:
    return {
        "integer_macs": coverage.integer_macs,
        "macs": coverage.macs,
        "integer_macs_share": coverage.macs_share,
        "integer_operations": coverage.integer_operations,
        "operations": coverage.operations,
        "integer_operations_share": coverage.operations_share,
        "float_islands": [dataclasses.asdict(island) for island in coverage.islands],
    }
