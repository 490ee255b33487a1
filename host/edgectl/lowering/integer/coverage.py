"""Which operations of a folded program run on integers, and why the others do not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import fx
from torch.export import ExportedProgram

from edgectl.lowering.integer import operators as _operators  # noqa: F401  (registers edgectl.*)
from edgectl.quantization.operators import macs_of
from edgectl.quantization.prepare import module_path

__all__ = ["IntegerCoverage", "Island", "integer_coverage", "integer_macs_of"]

_PRODUCTS = {"conv2d", "depthwise_conv2d", "transpose_conv2d", "fully_connected", "matmul"}
_CONVERSIONS = {"quantize", "dequantize", "accumulator_to_float"}

_REASONS = {
    "softmax": "softmax needs exponents of wide range; int8 would lose the small ones",
    "layer_norm": "layer normalisation divides by a deviation that only a run knows",
    "group_norm": "group normalisation divides by a deviation that only a run knows",
    "adaptive": "windows of unequal size have no integer form here",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """A float operation of a quantized program."""

    node: str
    module: str
    operator: str
    macs: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerCoverage:
    """Shares are 0 to 1; a program without any MACs has the share 1."""

    integer_macs: int
    macs: int
    integer_operations: int
    operations: int
    islands: tuple[Island, ...]

    @property
    def macs_share(self) -> float:
        """Integer share of the multiply-accumulates."""
        return self.integer_macs / self.macs if self.macs else 1.0

    @property
    def operations_share(self) -> float:
        """Integer share of the operations (conversions and moves of floats count as float)."""
        return self.integer_operations / self.operations if self.operations else 1.0


def _edge_name(node: fx.Node) -> str | None:
    text = str(node.target)
    return text.split(".")[1] if text.startswith("edgectl.") else None


def integer_macs_of(node: fx.Node) -> int:
    """Multiply-accumulates of one of our integer operators; 0 for every other node."""
    name = _edge_name(node)
    if name not in _PRODUCTS:
        return 0
    weight: Any = node.args[1]
    result, shape = node.meta["val"], weight.meta["val"].shape
    if name == "conv2d":
        return int(result.numel() * shape[1] * shape[2] * shape[3])
    if name == "depthwise_conv2d":
        return int(result.numel() * shape[0] * shape[1])
    if name == "transpose_conv2d":
        source: Any = node.args[0]
        return int(source.meta["val"].numel() * shape[0] * shape[1] * shape[2])
    return int(result.numel() * shape[-2])


def integer_coverage(program: ExportedProgram) -> IntegerCoverage:
    """Looks at every operation of a program that `fold_program` made."""
    return _coverage(program.graph.nodes)


def _coverage(nodes: Iterable[fx.Node]) -> IntegerCoverage:
    integer_macs = macs = integer = operations = 0
    islands = []
    for node in nodes:
        if node.op != "call_function" or "getitem" in str(node.target):
            continue
        own = integer_macs_of(node)
        integer_macs += own
        macs += own + macs_of(node)
        operations += 1
        value: Any = node.meta.get("val")
        floating = getattr(value, "dtype", None) is not None and value.dtype.is_floating_point
        if not floating and _edge_name(node) not in _CONVERSIONS:
            integer += 1
        elif _edge_name(node) is None:
            islands.append(
                Island(
                    node=node.name,
                    module=str(node.meta.get("custom", {}).get("edgectl_module", ""))
                    or module_path(node),
                    operator=str(node.target),
                    macs=macs_of(node),
                    reason=_reason(node),
                )
            )
    return IntegerCoverage(
        integer_macs=integer_macs,
        macs=macs,
        integer_operations=integer,
        operations=operations,
        islands=tuple(islands),
    )


def _reason(node: fx.Node) -> str:
    text = str(node.target)
    for key, reason in _REASONS.items():
        if key in text:
            return reason
    if macs_of(node):
        return "its inputs are not int8: kept in float, or weights that are computed at run time"
    return "between float operations, where converting costs more than it saves"
