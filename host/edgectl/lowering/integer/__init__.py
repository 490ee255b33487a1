"""Quantized programs as integer arithmetic.

`fold_program` turns dequantize -> operator -> quantize into integer operators on the exported
program; `expand_operators` spells those in TOSA (and a fast epilogue) once the program is MLIR.
"""

from __future__ import annotations

from edgectl.lowering.integer.fold import fold_program, holds_pairs

__all__ = ["fold_program", "holds_pairs"]
