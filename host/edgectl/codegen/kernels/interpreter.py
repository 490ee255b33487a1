"""Evaluates a chain of elementwise operations on integers, the way the compiler's code would.

Small on purpose: it knows the arithmetic that quantized epilogues are made of, on arrays [probes,
channels], and says so when it meets anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgectl.codegen.kernels.constants import Constants, element_name

__all__ = ["Interpreter", "NotInterpretableError"]

Array = NDArray[np.generic]
_INTEGERS = {"i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_DTYPES = {**_INTEGERS, **_FLOATS, "i1": np.bool_, "index": np.int64}
_TRANSPARENT = ("tosa.reshape", "tensor.expand_shape", "tensor.collapse_shape", "tosa.identity")


class NotInterpretableError(Exception):
    """An operation that the interpreter does not know."""


def _dtype(value: Any) -> Any:
    text = str(value.type)
    name = element_name(value) if text.startswith("tensor") else text
    if name not in _DTYPES:
        raise NotInterpretableError(name)
    return _DTYPES[name]


def _to_integer(x: Array, dtype: Any) -> Array:
    info = np.iinfo(dtype)
    wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=2.0**62, neginf=-(2.0**62))
    return np.clip(wide, float(info.min), float(info.max)).astype(np.int64).astype(dtype)


_COMPARISONS: dict[int, Callable[[Any, Any], Any]] = {
    0: np.equal,
    1: np.not_equal,
    2: np.less,
    3: np.less_equal,
    4: np.greater,
    5: np.greater_equal,
}
# arith.cmpf: ordered forms 1..6, unordered 8..13; without NaN the two agree.
_FLOAT_COMPARISONS: dict[int, Callable[[Any, Any], Any]] = {
    1: np.equal,
    2: np.greater,
    3: np.greater_equal,
    4: np.less,
    5: np.less_equal,
    6: np.not_equal,
    8: np.equal,
    9: np.greater,
    10: np.greater_equal,
    11: np.less,
    12: np.less_equal,
    13: np.not_equal,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax,
    "arith.minnumf": np.fmin,
    "arith.maxsi": np.maximum,
    "arith.minsi": np.minimum,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "tosa.add": np.add,
    "tosa.sub": np.subtract,
    "tosa.maximum": np.maximum,
    "tosa.minimum": np.minimum,
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "math.roundeven": np.rint,
    "math.floor": np.floor,
    "math.ceil": np.ceil,
    "tosa.floor": np.floor,
    "tosa.ceil": np.ceil,
    "arith.negf": np.negative,
    "tosa.negate": np.negative,
}


def _map_results(text: str) -> list[str]:
    """``affine_map<(d0, d1) -> (0, d1)>`` -> ``["0", "d1"]``."""
    inside = text.split("->", 1)[1].strip().removesuffix(">").strip()
    return [part.strip() for part in inside.strip("()").split(",")]


class Interpreter:
    """A chain of operations behind one value, ready to be run on probes."""

    def __init__(self, value: Any, operations: Sequence[Any], channels: int, constants: Constants):
        self._start = value
        self._operations = operations
        self._channels = channels
        self._constants = constants
        self._factors: list[NDArray[np.float32]] = []

    def factors(self) -> list[NDArray[np.float32]]:
        """The float constants that the chain multiplies by, per channel."""
        self._factors = []
        self.run(np.zeros((1, self._channels), np.int32))
        return list(self._factors)

    def run(self, sums: NDArray[np.int32]) -> Array:
        """The chain's result for sums [probes, channels]."""
        known: list[tuple[Any, Array]] = [(self._start, sums)]
        result: Array = sums
        with np.errstate(all="ignore"):
            for operation in self._operations:
                result = self._top(operation, known)
                known.append((operation.results[0], result))
        return np.broadcast_to(result, sums.shape)

    def _operand(self, value: Any, known: list[tuple[Any, Array]]) -> Array:
        for other, array in known:
            if other == value:
                return array
        constant = self._constants.read(value)
        if constant is None:
            raise NotInterpretableError("an operand that is neither the sums nor a constant")
        if constant.size == 1:
            return constant.reshape(())
        if constant.size == self._channels and constant.shape[-1] == self._channels:
            return constant.reshape(1, -1)
        if constant.ndim == 1 and constant.size == self._channels:
            return constant.reshape(1, -1)
        raise NotInterpretableError(f"a constant of shape {constant.shape}")

    def _top(self, operation: Any, known: list[tuple[Any, Array]]) -> Array:
        if operation.name in _TRANSPARENT:
            return self._operand(operation.operands[0], known)
        if operation.name == "linalg.generic":
            return self._generic(operation, known)
        if operation.name == "tosa.clamp":
            low, high = operation.attributes["min_val"].value, operation.attributes["max_val"].value
            x = self._operand(operation.operands[0], known)
            return np.clip(x, np.asarray(low, x.dtype), np.asarray(high, x.dtype))
        if operation.name == "tosa.mul":
            if len(operation.operands) == 3:
                shift = self._constants.read(operation.operands[2])
                if shift is None or shift.any():
                    raise NotInterpretableError("tosa.mul with a shift")
            return self._apply(
                "arith.mulf",
                operation,
                [self._operand(v, known) for v in list(operation.operands)[:2]],
            )
        if operation.name == "tosa.cast":
            x = self._operand(operation.operands[0], known)
            dtype = _dtype(operation.results[0])
            if np.issubdtype(dtype, np.integer) and np.issubdtype(x.dtype, np.floating):
                return _to_integer(np.rint(x), dtype)
            return x.astype(dtype)
        if not operation.name.startswith("tosa."):
            raise NotInterpretableError(operation.name)
        return self._apply(
            operation.name, operation, [self._operand(v, known) for v in operation.operands]
        )

    def _generic(self, operation: Any, known: list[tuple[Any, Array]]) -> Array:
        self._check_maps(operation, known)
        block = operation.regions[0].blocks[0]
        inside: list[tuple[Any, Array]] = []
        for argument, value in zip(block.arguments, operation.operands, strict=True):
            if argument == block.arguments[len(block.arguments) - 1]:
                break  # the output's old value; a body that reads it is refused below
            inside.append((argument, self._operand(value, known)))
        for nested in block.operations:
            op = nested.operation
            if op.name == "linalg.yield":
                return self._look_up(op.operands[0], inside)
            inside.append((op.results[0], self._body(op, inside)))
        raise NotInterpretableError("a body without a result")

    def _check_maps(self, operation: Any, known: list[tuple[Any, Array]]) -> None:
        """Refuses a body that permutes its input, or spreads a vector along another dimension."""
        maps = [_map_results(str(m)) for m in operation.attributes["indexing_maps"]]
        identity = [f"d{i}" for i in range(len(maps[-1]))]
        if maps[-1] != identity:
            raise NotInterpretableError("linalg.generic writes in another order")
        for value, results in zip(operation.operands, maps[:-1], strict=False):
            if any(other == value for other, _ in known):
                if results != identity:
                    raise NotInterpretableError("linalg.generic reads in another order")
                continue
            constant = self._constants.read(value)
            if constant is not None and constant.size > 1 and results[-1] != identity[-1]:
                raise NotInterpretableError("a vector that does not run along the channels")

    def _look_up(self, value: Any, inside: list[tuple[Any, Array]]) -> Array:
        for other, array in inside:
            if other == value:
                return array
        constant = self._constants.read(value)
        if constant is None or constant.size != 1:
            raise NotInterpretableError("a value from outside the body")
        return constant.reshape(())

    def _body(self, op: Any, inside: list[tuple[Any, Array]]) -> Array:
        name = op.name
        if name == "arith.constant":
            return np.asarray(op.attributes["value"].value, _dtype(op.results[0]))
        operands = [self._look_up(v, inside) for v in op.operands]
        dtype = _dtype(op.results[0])
        if name in ("arith.sitofp", "arith.extsi", "arith.extf", "arith.truncf"):
            return operands[0].astype(dtype)
        if name == "arith.trunci":
            return operands[0].astype(np.int64).astype(dtype)
        if name == "arith.fptosi":
            return _to_integer(np.trunc(operands[0]), dtype)
        if name == "arith.bitcast":
            return np.ascontiguousarray(operands[0]).view(dtype)
        if name == "arith.select":
            return np.where(operands[0], operands[1], operands[2]).astype(dtype)
        if name in ("arith.cmpi", "arith.cmpf"):
            table = _COMPARISONS if name == "arith.cmpi" else _FLOAT_COMPARISONS
            predicate = table.get(int(op.attributes["predicate"].value))
            if predicate is None:
                raise NotInterpretableError(name)
            return np.asarray(predicate(operands[0], operands[1]))
        return self._apply(name, op, operands)

    def _apply(self, name: str, op: Any, operands: list[Array]) -> Array:
        dtype = _dtype(op.results[0])
        if name == "arith.mulf" and dtype == np.float32:
            self._note_factor(operands)
        if name in _BINARY and len(operands) == 2:
            return np.asarray(_BINARY[name](operands[0], operands[1])).astype(dtype)
        if name in _UNARY and len(operands) >= 1:
            return np.asarray(_UNARY[name](operands[0])).astype(dtype)
        raise NotInterpretableError(name)

    def _note_factor(self, operands: list[Array]) -> None:
        for operand in operands:
            if operand.ndim == 0 or (operand.shape == (1, self._channels)):
                value = np.broadcast_to(operand, (1, self._channels))
                if value.any():  # the probe itself is zero, a factor is not
                    self._factors.append(value.reshape(-1).astype(np.float32))
                    return
