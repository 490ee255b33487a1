"""A zero padding that only a convolution reads becomes the convolution's own ``pad``.

TOSA's convolutions pad with the input's zero point. Only zero padding with a zero point of zero is
folded, so that the sums stay the same number for number.
"""

from __future__ import annotations

from typing import Any

from torch_mlir import ir

from edgectl.lowering.passes.values import (
    attribute_integers,
    functions,
    operations,
    producer,
    scalar,
    shape_values,
)

__all__ = ["pads_into_convolutions"]

_CONVOLUTIONS = ("tosa.conv2d", "tosa.depthwise_conv2d")
_LARGEST = 8192  # TOSA's MAX_KERNEL at the level that everyone supports


def pads_into_convolutions(module: Any) -> None:
    """Folds paddings of height and width, in place."""
    for function in functions(module):
        for operation in operations(function, *_CONVOLUTIONS):
            _fold(operation)


def _fold(operation: Any) -> None:
    pad = producer(operation.operands[0], "tosa.pad")
    if pad is None or len(list(pad.results[0].uses)) != 1:
        return
    amounts = shape_values(pad.operands[1])
    if amounts is None or len(amounts) != 8 or amounts[:2] != [0, 0] or amounts[6:] != [0, 0]:
        return
    if any(a < 0 for a in amounts) or scalar(pad.operands[2]) != 0:
        return
    if len(operation.operands) > 3 and scalar(operation.operands[3]) != 0:
        return
    sums = [a + b for a, b in zip(attribute_integers(operation, "pad"), amounts[2:6], strict=True)]
    if any(s > _LARGEST for s in sums):
        return
    with operation.context:
        operation.attributes["pad"] = ir.DenseI64ArrayAttr.get(sums)
    operation.operands[0] = pad.operands[0]
    pad.erase()
