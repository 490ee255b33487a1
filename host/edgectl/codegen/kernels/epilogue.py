"""Recognises what happens to a convolution's sums until they are stored.

An integer convolution ends in a chain of elementwise operations from i32 to i8 (TOSA operations or
``linalg.generic`` bodies). The chain is not matched letter by letter:
scale, zero point and bounds are read
off, and then the chain itself is *evaluated* on probe sums, ties and extremes of every channel
included; only when every value equals the kernel's arithmetic is the chain replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgectl.codegen.kernels.constants import Constants, element_name
from edgectl.codegen.kernels.interpreter import Interpreter, NotInterpretableError
from edgectl.codegen.kernels.shapes import Activation, Requantization

__all__ = ["FloatTail", "IntegerTail", "follow_float", "follow_integer", "narrowed", "requantize"]

_RESHAPES = ("tosa.reshape", "tensor.expand_shape", "tensor.collapse_shape")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerTail:
    """The chain from i32 sums to i8: its operations, the constant added, and its meaning."""

    operations: tuple[Any, ...]
    epilogue: Requantization


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatTail:
    """Bias additions and clamps behind a float convolution."""

    operations: tuple[Any, ...]
    bias: NDArray[np.generic]
    epilogue: Activation


def requantize(sums: NDArray[np.int32], epilogue: Requantization) -> NDArray[np.int8]:
    """What the kernels compute from sums [..., channels]."""
    real = np.clip(sums.astype(np.float32) * epilogue.scale, -(2.0**24), 2.0**24)
    value = np.rint(real).astype(np.int64) + epilogue.zero_point
    result: NDArray[np.int8] = np.clip(value, epilogue.low, epilogue.high).astype(np.int8)
    return result


def _only_user(value: Any) -> Any | None:
    uses = list(value.uses)
    return uses[0].owner.operation if len(uses) == 1 else None


def _keeps_channels(operation: Any, channels: int) -> bool:
    from iree.compiler import ir

    shape = list(ir.ShapedType(operation.results[0].type).shape)
    return bool(shape) and shape[-1] == channels


def follow_integer(value: Any, channels: int, constants: Constants) -> IntegerTail | None:
    """The chain that turns sums into i8, when it is a requantization; ``None`` otherwise."""
    operations: list[Any] = []
    current = value
    while element_name(current) != "i8":
        user = _only_user(current)
        if user is None or len(user.results) != 1 or len(operations) > 24:
            return None
        if not _keeps_channels(user, channels):
            return None
        operations.append(user)
        current = user.results[0]
    # Clamps that follow in i8 belong to it.
    while True:
        user = _only_user(current)
        if user is None or user.name not in ("tosa.clamp", "tosa.maximum", "tosa.minimum"):
            break
        if element_name(user.results[0]) != "i8":
            break
        operations.append(user)
        current = user.results[0]
    try:
        interpreter = Interpreter(value, operations, channels, constants)
        epilogue = _read_off(interpreter, channels)
        if epilogue is None or not _verify(interpreter, epilogue, channels):
            return None
    except NotInterpretableError:
        return None
    return IntegerTail(operations=tuple(operations), epilogue=epilogue)


def _read_off(interpreter: Interpreter, channels: int) -> Requantization | None:
    scale = np.ones(channels, np.float32)
    factors = interpreter.factors()
    if not factors:
        return None
    for factor in factors:
        scale = (scale * factor).astype(np.float32)
    if not np.isfinite(scale).all() or (scale <= 0).any():
        return None
    far = np.full((1, channels), 2**30, np.int32)
    high = interpreter.run(far)[0].astype(np.int64)
    low = interpreter.run(-far)[0].astype(np.int64)
    if (high != high[0]).any() or (low != low[0]).any():
        return None
    # Anywhere between the bounds the zero point shows itself.
    steps = np.arange(-300, 301, dtype=np.float64)[:, None] / scale.astype(np.float64)
    sums = np.clip(np.rint(steps), -(2**30), 2**30).astype(np.int32)
    values = interpreter.run(sums).astype(np.int64)
    between = (values > low) & (values < high)
    if not between.any():
        return None
    rows, columns = np.nonzero(between)
    real = np.rint(sums[rows[:1], columns[:1]].astype(np.float32) * scale[columns[:1]]).astype(
        np.int64
    )
    zero_point = int(values[rows[0], columns[0]] - real[0])
    return Requantization(scale=scale, zero_point=zero_point, low=int(low[0]), high=int(high[0]))


def _verify(interpreter: Interpreter, epilogue: Requantization, channels: int) -> bool:
    rng = np.random.default_rng(7)
    scale = epilogue.scale.astype(np.float64)
    near = np.rint((np.arange(-280, 281) + 0.5)[:, None] / scale)  # next to every rounding tie
    spread = rng.uniform(-400, 400, (400, channels)) / scale
    wide = rng.integers(-(2**24), 2**24, (200, channels))
    edges = np.repeat(
        np.array([0, 1, -1, 2**22, -(2**22), 2**30, -(2**30)])[:, None], channels, axis=1
    )
    for block in (near - 1, near, near + 1, spread, wide, edges):
        sums = np.clip(np.rint(block), -(2**30), 2**30).astype(np.int32)
        if not np.array_equal(interpreter.run(sums), requantize(sums, epilogue)):
            return False
    return True


def narrowed(value: Any) -> tuple[Any, ...]:
    """The reshapes and the cast that bring f32 sums to f16; empty when something else follows."""
    operations: list[Any] = []
    current = value
    while (user := _only_user(current)) is not None and len(user.results) == 1:
        operations.append(user)
        current = user.results[0]
        if user.name == "tosa.cast" and element_name(current) == "f16":
            return tuple(operations)
        if user.name not in _RESHAPES:
            break
    return ()


def follow_float(value: Any, channels: int, constants: Constants) -> FloatTail:
    """The additions of a constant per channel and the clamps right behind a float convolution."""
    dtype = np.float16 if element_name(value) == "f16" else np.float32
    bias: NDArray[Any] = np.zeros(channels, dtype)
    low, high = float("-inf"), float("inf")
    operations: list[Any] = []
    pending: list[Any] = []
    current = value
    clamped = False
    while True:
        user = _only_user(current)
        if user is None or len(user.results) != 1 or not _keeps_channels(user, channels):
            break
        if user.name in _RESHAPES:
            pending.append(user)
            current = user.results[0]
            continue
        if user.name == "tosa.add" and not clamped:
            constant = _other_constant(user, current, constants)
            if constant is None or constant.size not in (1, channels):
                break
            if constant.size == channels and channels > 1 and constant.shape[-1] != channels:
                break
            bias = np.add(bias, constant.reshape(-1)).astype(dtype)
        elif user.name == "tosa.clamp":
            bounds = _clamp_bounds(user)
            if bounds is None:
                break
            low, high, clamped = max(low, bounds[0]), max(min(high, bounds[1]), bounds[0]), True
        else:
            break
        operations += [*pending, user]
        pending = []
        current = user.results[0]
    return FloatTail(
        operations=tuple(operations), bias=bias, epilogue=Activation(low=low, high=high)
    )


def _other_constant(operation: Any, value: Any, constants: Constants) -> NDArray[Any] | None:
    first, second = operation.operands[0], operation.operands[1]
    return constants.read(second if first == value else first)


def _clamp_bounds(operation: Any) -> tuple[float, float] | None:
    try:
        return float(operation.attributes["min_val"].value), float(
            operation.attributes["max_val"].value
        )
    except (KeyError, AttributeError, ValueError):
        return None
