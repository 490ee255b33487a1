"""uint8 inputs keep their values: TOSA's integers are signed, so a byte is widened and masked.

A cast of an i8 tensor sign-extends; ``& 255`` on the widened value gives back what was meant.
"""

from __future__ import annotations

import torch
from torch import fx

from edgectl.lowering.legalisation.emit import emit

__all__ = ["read_unsigned"]

aten = torch.ops.aten
_CASTS = {aten._to_copy.default}  # noqa: SLF001


def read_unsigned(module: fx.GraphModule) -> int:
    """Casts of uint8 placeholders read the masked value; other uses are left (see `unsigned`)."""
    count = 0
    for node in list(module.graph.nodes):
        if node.op != "placeholder" or node.meta["val"].dtype is not torch.uint8:
            continue
        casts = [user for user in node.users if user.target in _CASTS]
        if not casts:
            continue
        order = {n: i for i, n in enumerate(module.graph.nodes)}
        first = min(casts, key=lambda n: order[n])
        wide = emit(first, aten._to_copy.default, node, dtype=torch.int32)  # noqa: SLF001
        masked = emit(first, aten.bitwise_and.Scalar, wide, 255)
        for cast in casts:
            cast.replace_input_with(node, masked)
            count += 1
    return count
