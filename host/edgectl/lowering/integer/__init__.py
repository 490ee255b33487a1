"""Quantized programs as integer arithmetic. How the stage uses it, in order:

    if holds_pairs(model.program):
        model = fold_model(model)        # q/dq pairs -> edgectl.* operators; golden outputs too
    coverage = integer_coverage(model.program)
    ...import into MLIR...
    expand_operators(module)             # edgectl.* -> TOSA, right after the import
    ...torch-mlir's pipelines to TOSA, canonicalize...
    constants_to_tosa(module)            # leftover arith constants -> tosa.const
    ...graph passes...
    round_fast(module)                   # last, before the bytecode: tosa.cast -> 3 instructions

With ``fold_model(model, exact_rounding=True)`` the module is TOSA with ``tosa.rescale`` only,
equal to Arm's reference model bit for bit; `round_fast` then has nothing to do. The MLIR steps
live in modules of their own (`expand`, `tosa_constants`, `fast_rounding`), because importing them
loads torch-mlir.
"""

from __future__ import annotations

from edgectl.lowering.integer.account import account_for, account_for_prequantized
from edgectl.lowering.integer.coverage import IntegerCoverage, Island, integer_coverage
from edgectl.lowering.integer.fold import fold_model, fold_program, holds_pairs

__all__ = [
    "IntegerCoverage",
    "Island",
    "account_for",
    "account_for_prequantized",
    "fold_model",
    "fold_program",
    "holds_pairs",
    "integer_coverage",
]
