"""What is valid TOSA for IREE: no float64, no cast between int64 and float.

torch-mlir carries Python's floats as float64 constants and casts them down; a few lowerings
compute in float64 in between. The model's own tensors are float32, so float32 in between loses
nothing that PyTorch had (a model whose own inputs or outputs are float64 does not come here).
A cast between int64 and float goes in parts that int32 holds (see `wide_integers`).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from edgectl.lowering.wide_integers import cast_in_parts, widen_sums

__all__ = ["narrow_types"]


def narrow_types(module: Any) -> int:
    """Rewrites the TOSA module in place; returns how many values changed their type."""
    from torch_mlir import ir

    with module.context, ir.Location.unknown():
        f32, f64 = ir.F32Type.get(), ir.F64Type.get()
        changed = 0
        for operation in list(_walk(module.operation)):
            changed += _narrow_f64(ir, operation, f32, f64)
    changed += widen_sums(module)
    with module.context, ir.Location.unknown():
        for operation in list(_walk(module.operation)):
            if operation.name == "tosa.cast":
                changed += cast_in_parts(operation)
    return changed


def _walk(operation: Any) -> Any:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _walk(inner.operation)


def _narrow_f64(ir: Any, operation: Any, f32: Any, f64: Any) -> int:
    changed = 0
    if operation.name in ("tosa.const", "arith.constant"):
        key = "values" if operation.name == "tosa.const" else "value"
        attribute = operation.attributes[key]
        if isinstance(attribute.type, ir.ShapedType) and attribute.type.element_type == f64:
            kind = ir.RankedTensorType.get(attribute.type.shape, f32)
            if not isinstance(attribute, ir.DenseElementsAttr):  # a resource: the weights
                array = _resource_array(ir, operation, key)
                new = ir.DenseElementsAttr.get(np.ascontiguousarray(array.astype(np.float32)))
            elif attribute.is_splat:
                value = ir.FloatAttr(attribute.get_splat_value()).value
                new = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(f32, _clip(value)))
            else:
                array = np.array(attribute).astype(np.float32)
                new = ir.DenseElementsAttr.get(
                    np.ascontiguousarray(array), type=f32, shape=attribute.type.shape
                )
            operation.attributes[key] = new
    for result in operation.results:
        kind = result.type
        if isinstance(kind, ir.RankedTensorType) and kind.element_type == f64:
            result.set_type(ir.RankedTensorType.get(kind.shape, f32))
            changed += 1
    return changed


def _clip(value: float) -> float:
    limit = float(np.finfo(np.float32).max)
    return value if not np.isfinite(value) else min(max(value, -limit), limit)


def _resource_array(ir: Any, operation: Any, key: str) -> np.ndarray[Any, Any]:
    """The values of a ``dense_resource`` of float64, which the bindings show only in print."""
    shape = list(operation.attributes[key].type.shape)
    with operation.location:
        alone = ir.Module.create()
        with ir.InsertionPoint(alone.body):
            operation.clone()
    found = re.findall(r'"0x([0-9A-Fa-f]+)"', alone.operation.get_asm(enable_debug_info=False))
    data = bytes.fromhex(found[0])[4:]  # the first word is the alignment
    return np.frombuffer(data, np.float64).reshape(shape)
