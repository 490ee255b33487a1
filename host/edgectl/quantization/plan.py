"""Which operations become integer arithmetic, and which values are stored as int8.

A product (convolution, linear layer, matrix product) is always worth it. Everything else becomes
integer only where it saves conversions: when what comes in is int8 already and what goes out is
wanted as int8. A relu or clamp after a product belongs to the product: the value is quantized
after it, never between (which would waste half of the range on values that are cut off).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from torch import fx

from edgectl.quantization.operators import Kind, is_clamp, kind_of, value_inputs, weight_of
from edgectl.quantization.prepare import module_path
from edgectl.quantization.recipe import Recipe

__all__ = ["Layer", "Plan", "make_plan"]

_FUSE_WITH_CLAMP = {Kind.PRODUCT, Kind.COMBINE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One integer operation: its node, and the last of the clamps that are fused with it."""

    node: fx.Node
    kind: Kind
    result: fx.Node
    inputs: tuple[fx.Node, ...]
    weight: fx.Node | None = None
    weight_axis: int | None = None


@dataclass(slots=True, kw_only=True)
class Plan:
    """The integer layers in graph order, and the values that are int8, by group.

    ``group`` maps each int8 value to the value that stands for all that share its parameters.
    """

    layers: dict[fx.Node, Layer] = field(default_factory=dict)
    quantized: list[fx.Node] = field(default_factory=list)
    group: dict[fx.Node, fx.Node] = field(default_factory=dict)

    def root(self, node: fx.Node) -> fx.Node:
        """The value that stands for ``node``'s group."""
        while self.group.get(node, node) is not node:
            node = self.group[node]
        return node

    def watched(self) -> dict[fx.Node, fx.Node]:
        """The values whose range decides, each with its group's representative.

        What only moves values of its own group has nothing new to show.
        """
        by_result = {layer.result: layer for layer in self.layers.values()}
        found = {}
        for node in self.quantized:
            layer = by_result.get(node)
            root = self.root(node)
            moves = layer is not None and layer.kind in (Kind.MOVE, Kind.JOIN)
            padding = layer is not None and "pad" in str(layer.node.target)
            inside = layer is not None and all(self.root(v) is root for v in layer.inputs)
            if not (moves and inside and not padding):
                found[node] = root
        return found

    def members(self) -> dict[fx.Node, list[fx.Node]]:
        """Group representative -> values in it, in graph order."""
        found: dict[fx.Node, list[fx.Node]] = {}
        for node in self.quantized:
            found.setdefault(self.root(node), []).append(node)
        return found


def make_plan(module: fx.GraphModule, recipe: Recipe, *, excluded: Collection[str] = ()) -> Plan:
    """Decides for every node; ``excluded`` holds names of nodes that must stay float."""
    layers = _candidates(module, recipe, set(excluded))
    _drop_unprofitable(module, layers, quantized_io=recipe.quantized_io)
    plan = Plan(layers=layers)
    _collect_values(module, plan, quantized_io=recipe.quantized_io)
    _share(plan)
    return plan


def kept_float(node: fx.Node, recipe: Recipe) -> bool:
    """True when the recipe keeps the module that ``node`` belongs to in float."""
    path = module_path(node)
    return any(path == kept or path.startswith(f"{kept}.") for kept in recipe.keep_float)


def _candidates(module: fx.GraphModule, recipe: Recipe, excluded: set[str]) -> dict[fx.Node, Layer]:
    layers: dict[fx.Node, Layer] = {}
    fused: set[fx.Node] = set()
    for node in module.graph.nodes:
        kind = kind_of(node)
        if kind is None or node in fused or node.name in excluded or kept_float(node, recipe):
            continue
        weight = weight_of(node) if kind is Kind.PRODUCT else None
        if weight is not None and weight[0].op != "get_attr":
            continue  # weights that are computed have no fixed scale
        if kind is Kind.GATHER and node.args[0].op != "get_attr":
            continue
        result = node
        while kind in _FUSE_WITH_CLAMP and len(result.users) == 1:
            (user,) = result.users
            if not is_clamp(user):
                break
            fused.add(user)
            result = user
        layers[node] = Layer(
            node=node,
            kind=kind,
            result=result,
            inputs=tuple(value_inputs(node, kind)),
            weight=weight[0] if weight else None,
            weight_axis=weight[1] if weight else None,
        )
    return layers


def _drop_unprofitable(
    module: fx.GraphModule, layers: dict[fx.Node, Layer], *, quantized_io: bool
) -> None:
    """Takes out what would convert more than it computes, until nothing changes."""
    changed = True
    while changed:
        changed = False
        by_result = {layer.result: layer for layer in layers.values()}
        wanted = {v for layer in layers.values() for v in layer.inputs}
        for layer in list(layers.values()):
            if layer.kind in (Kind.PRODUCT, Kind.GATHER):
                continue
            comes = any(
                value in by_result or (quantized_io and value.op == "placeholder")
                for value in layer.inputs
            )
            leaves = layer.result in wanted or (
                quantized_io and any(u.op == "output" for u in layer.result.users)
            )
            if not (comes and leaves):
                del layers[layer.node]
                changed = True
    del module


def _collect_values(module: fx.GraphModule, plan: Plan, *, quantized_io: bool) -> None:
    wanted = {v for layer in plan.layers.values() for v in layer.inputs}
    always = {
        layer.result
        for layer in plan.layers.values()
        if layer.kind not in (Kind.PRODUCT, Kind.COMBINE)
    }
    results = {layer.result for layer in plan.layers.values()}
    for node in module.graph.nodes:
        returned = quantized_io and any(u.op == "output" for u in node.users)
        if node in wanted or node in always or (returned and node in results):
            plan.quantized.append(node)


def _share(plan: Plan) -> None:
    known = set(plan.quantized)

    def unite(first: fx.Node, second: fx.Node) -> None:
        a, b = plan.root(first), plan.root(second)
        if a is not b:
            plan.group[b] = a

    for layer in plan.layers.values():
        if layer.kind is Kind.MOVE:
            for value in layer.inputs:
                if value in known:
                    unite(value, layer.result)
        elif layer.kind is Kind.JOIN:
            for value in layer.inputs:
                # A value that others read as well keeps its own, finer scale.
                if value in known and len(value.users) == 1:
                    unite(layer.result, value)
