"""A verdict on every operation of the program: where it went, why, and what it costs."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from edgectl.lowering.importer import module_path
from edgectl.records import Coverage, Dialect, OperatorVerdict, Where

__all__ = ["coverage_of", "macs_of"]

aten = torch.ops.aten
_MOVES = {
    "view",
    "reshape",
    "permute",
    "transpose",
    "expand",
    "unsqueeze",
    "squeeze",
    "getitem",
    "alias",
    "clone",
    "_unsafe_view",
    "t",
    "flatten",
    "unflatten",
    "detach",
}


def coverage_of(
    module: fx.GraphModule,
    dialect: Dialect,
    refused: dict[tuple[str, str], str],
    hopeless: frozenset[tuple[str, str]] = frozenset(),
) -> Coverage:
    """The verdicts, in program order.

    Args:
        module: the legalised graph.
        dialect: what the module ended in.
        refused: (module path, torch-dialect operator) -> why TOSA did not take it.
        hopeless: those of them that no dialect takes.
    """
    verdicts = []
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        verdicts.append(_verdict(node, dialect, refused, hopeless))
    return Coverage(operators=tuple(verdicts))


def _verdict(
    node: fx.Node,
    dialect: Dialect,
    refused: dict[tuple[str, str], str],
    hopeless: frozenset[tuple[str, str]],
) -> OperatorVerdict:
    path, name = module_path(node), _name(node)
    short = name.split(".")[1] if name.count(".") > 1 else name.rsplit(".", 1)[-1]
    keys = [(path, f"torch.{name}"), (path, f"torch.{name.removesuffix('.default')}")]
    reason = next((refused[key] for key in keys if key in refused), "")
    if any(key in hopeless for key in keys):
        where = Where.REFUSED
    elif dialect is Dialect.TOSA:
        where = Where.FOLDED if short in _MOVES else Where.TOSA
    else:
        where = Where.FALLBACK
        reason = reason or "in the same module as an operation that TOSA cannot say"
    return OperatorVerdict(
        node=node.name,
        module=path,
        operator=name,
        where=where,
        dialect="" if where is Where.REFUSED else str(dialect),
        reason=reason,
        macs=macs_of(node),
        integer=getattr(node.target, "namespace", "") == "edgectl",
    )


def _name(node: fx.Node) -> str:
    target: Any = node.target
    return str(target) if isinstance(target, torch._ops.OpOverload) else target.__name__  # noqa: SLF001


def macs_of(node: fx.Node) -> int:
    """Multiply-accumulates of a convolution or matrix product; 0 for everything else."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not all(isinstance(n, int) for n in value.shape):
        return 0
    shapes = [
        n.meta["val"].shape
        for n in node.all_input_nodes
        if isinstance(n.meta.get("val"), torch.Tensor)
    ]
    if node.target is aten.convolution.default:
        weight = shapes[1]
        if node.args[6]:  # transposed: every input element meets the kernel once
            return int(math.prod(shapes[0]) * math.prod(weight[1:]))
        return int(value.numel() * math.prod(weight[1:]))
    if node.target in (aten.mm.default, aten.bmm.default):
        return int(value.numel() * shapes[0][-1])
    if node.target in (aten.addmm.default, aten.baddbmm.default):
        return int(value.numel() * shapes[1][-1])
    return 0
