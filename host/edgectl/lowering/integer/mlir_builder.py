"""Small helpers that build TOSA operations next to an existing operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch_mlir import ir

__all__ = ["TosaBuilder"]


class TosaBuilder:
    """Builds operations before ``anchor``, at its location."""

    def __init__(self, anchor: Any) -> None:
        self._anchor = anchor
        self._location = anchor.location

    def op(
        self,
        name: str,
        result: Any,
        operands: Sequence[Any],
        attributes: dict[str, Any] | None = None,
    ) -> Any:
        """One operation with one result; returns the value."""
        with self._location:
            made = ir.Operation.create(
                name, results=[result], operands=list(operands), attributes=attributes or {}
            )
            ir.InsertionPoint(self._anchor).insert(made)
        return made.result

    def tensor_type(self, shape: Sequence[int], element: Any) -> Any:
        """``tensor<...>``."""
        with self._location:
            return ir.RankedTensorType.get(list(shape), element)

    def element(self, name: str) -> Any:
        """A type by its MLIR spelling, for example ``i8``."""
        return ir.Type.parse(name, self._location.context)

    def constant(self, values: np.ndarray) -> Any:
        """``tosa.const``."""
        with self._location:
            attribute = ir.DenseElementsAttr.get(np.ascontiguousarray(values))
        return self.op("tosa.const", attribute.type, [], {"values": attribute})

    def scalar(self, value: float, element: str, rank: int = 1) -> Any:
        """A constant with ``rank`` dimensions of size one."""
        dtype = {"i8": np.int8, "i32": np.int32, "f32": np.float32}[element]
        return self.constant(np.full([1] * rank, value, dtype=dtype))

    def shape_constant(self, values: Sequence[int]) -> Any:
        """``tosa.const_shape``."""
        with self._location:
            kind = ir.Type.parse(f"!tosa.shape<{len(values)}>")
            array = np.asarray(list(values), dtype=np.int64)
            attribute = ir.DenseElementsAttr.get(array, type=ir.IndexType.get())
        return self.op("tosa.const_shape", kind, [], {"values": attribute})

    def integers(self, values: Sequence[int]) -> Any:
        """``array<i64: ...>``."""
        with self._location:
            return ir.DenseI64ArrayAttr.get(list(values))

    def attribute(self, text: str) -> Any:
        """An attribute by its MLIR spelling."""
        return ir.Attribute.parse(text, self._location.context)

    def shape_of(self, value: Any) -> list[int]:
        """The static shape of a tensor value."""
        return list(ir.RankedTensorType(value.type).shape)

    def reshape(self, value: Any, shape: Sequence[int]) -> Any:
        """``tosa.reshape``; the value itself when it has that shape already."""
        kind = ir.RankedTensorType(value.type)
        if list(kind.shape) == list(shape):
            return value
        result = self.tensor_type(shape, kind.element_type)
        return self.op("tosa.reshape", result, [value, self.shape_constant(shape)])

    def cast(self, value: Any, element: str) -> Any:
        """``tosa.cast``."""
        return self.op(
            "tosa.cast", self.tensor_type(self.shape_of(value), self.element(element)), [value]
        )

    def binary(self, name: str, first: Any, second: Any, *, extra: Sequence[Any] = ()) -> Any:
        """``tosa.add`` and its kind; the smaller operand is broadcast (equal ranks)."""
        shape = [
            max(a, b) for a, b in zip(self.shape_of(first), self.shape_of(second), strict=True)
        ]
        element = ir.RankedTensorType(first.type).element_type
        return self.op(name, self.tensor_type(shape, element), [first, second, *extra])

    def multiply(self, first: Any, second: Any) -> Any:
        """``tosa.mul`` without a shift."""
        return self.binary("tosa.mul", first, second, extra=[self.scalar(0, "i8")])

    def clamp(self, value: Any, low: float, high: float, element: str) -> Any:
        """``tosa.clamp``."""
        spelled = [
            f"{float(v):.9e} : f32" if element == "f32" else f"{int(v)} : {element}"
            for v in (low, high)
        ]
        return self.op(
            "tosa.clamp",
            value.type,
            [value],
            {"min_val": self.attribute(spelled[0]), "max_val": self.attribute(spelled[1])},
        )
