"""Tensor constants of other dialects as ``tosa.const``.

Resolving the casts around expanded operators leaves their constants as ``arith.constant``, which
IREE takes and TOSA's own tools do not.
"""

from __future__ import annotations

from typing import Any

from torch_mlir import ir

__all__ = ["constants_to_tosa"]


def constants_to_tosa(module: Any) -> int:
    """Rewrites every tensor constant outside of regions' bodies, in place; returns how many."""
    found: list[Any] = []

    def visit(operation: Any) -> Any:
        # ``isinstance`` of types differs between releases of the bindings; the text does not.
        if operation.name == "arith.constant" and str(operation.results[0].type).startswith(
            "tensor<"
        ):
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for operation in found:
        value = operation.attributes["value"]
        with operation.location, ir.InsertionPoint(operation):
            new = ir.Operation.create(
                "tosa.const", results=[operation.results[0].type], attributes={"values": value}
            )
        operation.results[0].replace_all_uses_with(new.result)
        operation.erase()
    return len(found)
