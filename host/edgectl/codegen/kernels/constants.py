"""Reads constant tensors out of a module as NumPy arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Constants", "element_name"]

_TYPES = {
    "i1": np.bool_,
    "i8": np.int8,
    "i16": np.int16,
    "i32": np.int32,
    "i64": np.int64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
}
_RESOURCE = re.compile(r'^\s*([\w.$-]+|"[^"]*"): "0x([0-9A-Fa-f]+)"', re.MULTILINE)


def element_name(value: Any) -> str:
    """``i8``, ``f32``, ... of a value of tensor type."""
    from iree.compiler import ir

    return str(ir.ShapedType(value.type).element_type)


class Constants:
    """The constant values of one module; large ones live in its resource section."""

    def __init__(self, module: Any):
        self._module = module
        self._resources: Mapping[str, bytes] | None = None

    def read(self, value: Any) -> NDArray[np.generic] | None:
        """The array behind a value, or ``None`` when it is not a constant."""
        from iree.compiler import ir

        owner = value.owner
        if not isinstance(owner, ir.OpView | ir.Operation):
            return None
        operation = owner.operation
        if operation.name in ("tosa.reshape", "tensor.expand_shape", "tensor.collapse_shape"):
            inner = self.read(operation.operands[0])
            return None if inner is None else inner.reshape(list(ir.ShapedType(value.type).shape))
        if operation.name == "tosa.const":
            attribute = operation.attributes["values"]
        elif operation.name == "arith.constant":
            attribute = operation.attributes["value"]
        else:
            return None
        return self._decode(attribute, value.type)

    def _decode(self, attribute: Any, tensor: Any) -> NDArray[np.generic] | None:
        from iree.compiler import ir

        shaped = isinstance(tensor, ir.ShapedType)
        dtype = _TYPES.get(str(tensor.element_type) if shaped else str(tensor))
        if dtype is None:
            return None
        if not shaped:
            return np.asarray(attribute.value, dtype)
        shape = list(tensor.shape)
        if isinstance(attribute, ir.DenseElementsAttr):
            if attribute.is_splat:
                return np.full(shape, attribute.get_splat_value().value, dtype)
            return np.array(attribute).astype(dtype).reshape(shape)
        handle = re.match(r'dense_resource<([\w.$-]+|"[^"]*")>', str(attribute))
        if handle is None:
            return None
        data = self._resource(handle[1])
        return None if data is None else np.frombuffer(data, dtype).reshape(shape)

    def _resource(self, name: str) -> bytes | None:
        # The bindings cannot read resources; the printed form has them as hexadecimal, behind four
        # bytes of alignment.
        if self._resources is None:
            text = self._module.operation.get_asm(large_elements_limit=8)
            at = text.rfind("dialect_resources")
            found = _RESOURCE.findall(text, at) if at >= 0 else []
            self._resources = {key: bytes.fromhex(body)[4:] for key, body in found}
        return self._resources.get(name)
