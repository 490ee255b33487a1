"""TOSA modules for tests of the passes: read from text, interpreted by NumPy, run by IREE."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
from torch_mlir import ir

_CONTEXT: list[Any] = []


def context() -> Any:
    """One MLIR context with TOSA loaded."""
    if not _CONTEXT:
        from torch_mlir.dialects import torch as torch_dialect
        from torch_mlir.passmanager import PassManager

        made = ir.Context()
        torch_dialect.register_dialect(made)
        with made:  # a pipeline loads the dialects that it depends on
            PassManager.parse(
                "builtin.module(torch-backend-to-tosa-backend-pipeline,func.func(tosa-reduce-transposes))"
            ).run(ir.Module.parse("module {}").operation)
        _CONTEXT.append(made)
    return _CONTEXT[0]


def parse(text: str) -> Any:
    """A module from text."""
    return ir.Module.parse(text, context())


def copy(module: Any) -> Any:
    """An independent copy."""
    with context():
        return ir.Module.parse(str(module.operation.get_asm(print_generic_op_form=True)))


def counts(module: Any) -> collections.Counter[str]:
    """How many operations of each name the functions contain, without ``tosa.``."""
    return collections.Counter(
        view.operation.name.removeprefix("tosa.")
        for function in module.body.operations
        for view in function.operation.regions[0].blocks[0].operations
    )


def named(module: Any, name: str) -> list[Any]:
    """The operations of one name."""
    return [
        view.operation
        for function in module.body.operations
        for view in function.operation.regions[0].blocks[0].operations
        if view.operation.name == f"tosa.{name}"
    ]


class Interpreter:
    """The part of TOSA that property tests use, in NumPy."""

    def __init__(self, module: Any) -> None:
        self.function = module.body.operations[0].operation

    def run(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """The function's results."""
        block = self.function.regions[0].blocks[0]
        self.values: list[tuple[Any, Any]] = list(zip(block.arguments, inputs, strict=True))
        for view in block.operations:
            operation = view.operation
            operands = [self._value(o) for o in operation.operands]
            if operation.name == "func.return":
                return operands
            result = self._step(operation, operands)
            if isinstance(result, np.ndarray):
                kind = ir.RankedTensorType(operation.results[0].type)
                assert list(result.shape) == list(kind.shape), (operation.name, result.shape)
            self.values.append((operation.results[0], result))
        raise AssertionError("no return")

    def _value(self, value: Any) -> Any:
        for known, number in reversed(self.values):
            if known == value:
                return number
        raise AssertionError(value)

    def _step(self, operation: Any, x: list[Any]) -> Any:
        attributes = operation.attributes
        match operation.name.removeprefix("tosa."):
            case "const":
                return np.array(attributes["values"])
            case "const_shape":
                return [int(v) for v in ir.DenseIntElementsAttr(attributes["values"])]
            case "transpose":
                return x[0].transpose([int(v) for v in attributes["perms"]])
            case "reshape":
                return x[0].reshape(x[1])
            case "add":
                return x[0] + x[1]
            case "sub":
                return x[0] - x[1]
            case "mul":
                return x[0] * x[1]
            case "maximum":
                return np.maximum(x[0], x[1])
            case "minimum":
                return np.minimum(x[0], x[1])
            case "abs":
                return np.abs(x[0])
            case "clamp":
                low, high = attributes["min_val"].value, attributes["max_val"].value
                return np.clip(x[0], np.float32(low), np.float32(high))
            case "greater":
                return x[0] > x[1]
            case "select":
                return np.where(x[0], x[1], x[2])
            case "concat":
                return np.concatenate(x, axis=attributes["axis"].value)
            case "reverse":
                return np.flip(x[0], axis=attributes["axis"].value)
            case "reduce_sum":
                return x[0].sum(axis=attributes["axis"].value, keepdims=True)
            case "reduce_max":
                return x[0].max(axis=attributes["axis"].value, keepdims=True)
            case "pad":
                amounts = np.reshape(x[1], (-1, 2))
                return np.pad(x[0], amounts, constant_values=x[2].item())
            case "slice":
                window = tuple(slice(a, a + n) for a, n in zip(x[1], x[2], strict=True))
                return x[0][window]
            case "tile":
                return np.tile(x[0], x[1])
        raise AssertionError(f"{operation.name} is not interpreted")
