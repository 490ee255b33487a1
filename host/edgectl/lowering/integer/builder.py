"""Adding integer operators to a graph: values, metadata, and what ends a product."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgectl.graph import new_constant
from edgectl.lowering.integer import operators as _operators  # noqa: F401  (registers edgectl.*)
from edgectl.lowering.integer.pairs import Int8Value, quantizer_of
from edgectl.lowering.integer.rounding import fixed_point
from edgectl.quantization.operators import is_clamp
from edgectl.quantization.prepare import module_path

__all__ = ["Builder", "Ending"]

edge = torch.ops.edgectl
aten = torch.ops.aten

# Accumulators of 2**24 and more are no longer exact in float32.
_LARGEST_BIAS = float(1 << 30)


class Ending:
    """What follows an operator: clamps, and the quantize nodes that read the result."""

    def __init__(self, module: fx.GraphModule, node: fx.Node) -> None:
        self.result = node
        self.low, self.high = float("-inf"), float("inf")
        while len(self.result.users) == 1:
            (user,) = self.result.users
            if not is_clamp(user) or user.args[0] is not self.result:
                break
            low, high = _limits(user)
            self.low = max(self.low, low) if high >= self.low else self.low
            self.high = min(self.high, high)
            self.result = user
        found = [quantizer_of(module, user) for user in self.result.users]
        self.quantizers = [f for f in found if f is not None]
        same = {(f.scale, f.zero_point, f.minimum, f.maximum) for f in self.quantizers}
        # One int8 form, wanted by everybody: then the float value need not exist.
        self.quantized = (
            self.quantizers[0] if len(same) == 1 and len(self.quantizers) == len(found) else None
        )

    def limits(self) -> tuple[int, int]:
        """The smallest and largest integer that the clamps leave."""
        if self.quantized is None:
            raise ValueError("nothing here is quantized")
        to = self.quantized
        low = to.minimum if self.low == float("-inf") else round(self.low / to.scale)
        high = to.maximum if self.high == float("inf") else round(self.high / to.scale)
        if self.low != float("-inf"):
            low = max(to.minimum, min(to.maximum, low + to.zero_point))
        if self.high != float("inf"):
            high = max(to.minimum, min(to.maximum, high + to.zero_point))
        return int(low), int(high)


def _limits(node: fx.Node) -> tuple[float, float]:
    name = str(node.target)
    rest: list[Any] = [*node.args[1:], *node.kwargs.values()]
    if "relu6" in name:
        return 0.0, 6.0
    if "hardtanh" in name:
        rest = [*rest, *[-1.0, 1.0][len(rest) :]]
        return float(rest[0]), float(rest[1])
    if "clamp" in name:
        low = rest[0] if rest else None
        high = rest[1] if len(rest) > 1 else None
        return (
            float("-inf") if low is None else float(low),
            float("inf") if high is None else float(high),
        )
    return 0.0, float("inf")


class Builder:
    """Makes nodes right before the current one, with values and the layer they belong to."""

    def __init__(self, module: fx.GraphModule, *, exact_rounding: bool) -> None:
        self.module = module
        self.exact_rounding = exact_rounding
        self._place: fx.Node | None = None
        self._origin: fx.Node | None = None
        self._meta: dict[str, Any] = {}
        self._custom: dict[str, Any] = {}

    def begin(self, node: fx.Node, *, macs: int = 0) -> None:
        """The operators made from now on stand before ``node`` and belong to its layer."""
        self._place = self._origin = node
        self._meta = {k: v for k, v in node.meta.items() if k in ("nn_module_stack", "stack_trace")}
        self._custom = {
            "edgectl_module": module_path(node),
            "edgectl_operator": str(node.target),
            "edgectl_macs": macs,
        }

    @property
    def place(self) -> fx.Node:
        """Where the next operator goes."""
        if self._place is None:
            raise ValueError("begin() comes first")
        return self._place

    @property
    def origin(self) -> fx.Node:
        """The float operator that is being replaced."""
        if self._origin is None:
            raise ValueError("begin() comes first")
        return self._origin

    def before(self, node: fx.Node) -> None:
        """Moves on to ``node`` without changing the layer."""
        self._place = node

    def call(self, target: Any, *arguments: Any) -> fx.Node:
        """One new operator."""
        with self.module.graph.inserting_before(self.place):
            node = self.module.graph.call_function(target, arguments)
        node.meta = {**self._meta, "custom": dict(self._custom)}
        node.meta["val"] = _shape_of(target, arguments)
        return node

    def constant(self, name: str, value: torch.Tensor) -> fx.Node:
        """One new constant."""
        node = new_constant(self.module, name, value, self.place)
        node.meta["val"] = value
        return node

    def permute(self, node: fx.Node, order: list[int]) -> fx.Node:
        """``aten.permute``."""
        return self.call(aten.permute.default, node, order)

    def finish(
        self,
        ending: Ending,
        accumulator: fx.Node,
        scales: torch.Tensor,
        *,
        offset: int = 0,
        after: Any = None,
    ) -> None:
        """Ends a product: its accumulator (scaled by last axis) becomes int8 or float32.

        ``after`` moves the result to where the float operator had it (a permute or a view).
        """
        if ending.quantized is None:
            name = "accumulator_scale"
            scale = self.constant(name, scales.float())
            result = self.call(edge.accumulator_to_float.default, accumulator, scale, offset)
            self._replace_float(ending, result if after is None else after(result))
            return
        to = ending.quantized
        low, high = ending.limits()
        factors = scales.double() / to.scale
        if self.exact_rounding:
            multiplier, shift = fixed_point(factors)
            result = self.call(
                edge.rescale.default,
                accumulator,
                self.constant("multiplier", multiplier),
                self.constant("shift", shift),
                offset,
                to.zero_point,
                low,
                high,
            )
        else:
            scale = self.constant("requantize_scale", factors.float())
            result = self.call(
                edge.requantize.default, accumulator, scale, offset, to.zero_point, low, high
            )
        self.replace_quantized(ending, result if after is None else after(result))

    def replace_quantized(self, ending: Ending, result: fx.Node) -> None:
        """``result`` takes the place of the quantize nodes."""
        for old in ending.quantizers:
            old.node.replace_all_uses_with(result)

    def _replace_float(self, ending: Ending, result: fx.Node) -> None:
        # Clamps stay float operators behind the conversion, so the product itself is replaced.
        del ending
        self.origin.replace_all_uses_with(result)


def _shape_of(target: Any, arguments: Any) -> Any:
    """The value a new operator has, on the meta device."""
    values = fx.map_arg(
        arguments,
        lambda n: torch.empty(
            tuple(int(s) for s in n.meta["val"].shape), dtype=n.meta["val"].dtype, device="meta"
        ),
    )
    return target(*values)


def zero_fold(
    weight_sums: torch.Tensor, bias: torch.Tensor | None, scales: torch.Tensor, value: Int8Value
) -> torch.Tensor | None:
    """The int32 bias with the input's zero point in it, or ``None`` when it does not fit."""
    units = scales.double() * value.scale
    own = torch.zeros_like(units) if bias is None else torch.round(bias.double() / units)
    total = own.expand_as(weight_sums.double()) - value.zero_point * weight_sums.double()
    if not bool((total.abs() < _LARGEST_BIAS).all()):
        return None
    return total.to(torch.int32)
