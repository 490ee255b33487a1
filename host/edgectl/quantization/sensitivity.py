"""What each layer alone costs: the noise that quantizing only it puts on the outputs.

The float values of one sample are kept; for each layer only what depends on it is computed
again, with its input, weight and result rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from edgectl.quantization.calibrate import Sample
from edgectl.quantization.operators import Kind, macs_of
from edgectl.quantization.parameters import ActivationParameters
from edgectl.quantization.plan import Layer, Plan, make_plan
from edgectl.quantization.prepare import module_path

if TYPE_CHECKING:
    from edgectl.quantization.quantizer import Rounded, Workbench

__all__ = ["sensitivity"]


def sensitivity(
    bench: Workbench, rounded: Rounded, samples: Iterable[Sample]
) -> list[dict[str, Any]]:
    """Every product with the noise it causes, worst per multiply-accumulate first.

    ``noise`` is the sum of squared output differences over ``samples``.
    """
    plan = make_plan(bench.module, bench.recipe)
    parameters = bench.parameters(plan)
    products = [layer for layer in plan.layers.values() if layer.kind is Kind.PRODUCT]
    noise = {layer.node: 0.0 for layer in products}
    nodes = list(bench.module.graph.nodes)
    readers = _everything_after(nodes)
    for sample in samples:
        values = _float_values(bench.module, sample)
        exact = _outputs(nodes[-1], values)
        for index, layer in enumerate(products):
            changed = dict(values)
            _run_again(bench.module, plan, parameters, layer, rounded, readers[layer.node], changed)
            noise[layer.node] += sum(
                float(((a - b).double() ** 2).sum())
                for a, b in zip(exact, _outputs(nodes[-1], changed), strict=True)
            )
            bench.progress("measure sensitivity", index + 1, len(products))
    entries: list[dict[str, Any]] = [
        {
            "node": layer.node.name,
            "module": module_path(layer.node),
            "macs": macs_of(layer.node),
            "noise": noise[layer.node],
        }
        for layer in products
    ]
    entries.sort(key=lambda entry: -entry["noise"] / max(entry["macs"], 1))
    return entries


def _everything_after(nodes: list[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """For each node, itself and what depends on it, in graph order."""
    order = {node: place for place, node in enumerate(nodes)}
    reach: dict[fx.Node, set[fx.Node]] = {}
    for node in reversed(nodes):
        reach[node] = {node}.union(*(reach[user] for user in node.users))
    return {node: sorted(found, key=order.__getitem__) for node, found in reach.items()}


def _float_values(module: fx.GraphModule, sample: Sample) -> dict[fx.Node, Any]:
    interpreter = fx.Interpreter(module, garbage_collect_values=False)
    with torch.no_grad():
        interpreter.run(*sample, enable_io_processing=False)
    return dict(interpreter.env)


def _outputs(output: fx.Node, values: dict[fx.Node, Any]) -> list[torch.Tensor]:
    found = fx.map_arg(output.args[0], lambda node: values[node])
    return [
        leaf
        for leaf in pytree.tree_leaves(found)
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    ]


def _run_again(
    module: fx.GraphModule,
    plan: Plan,
    parameters: dict[fx.Node, ActivationParameters],
    layer: Layer,
    rounded: Rounded,
    dependents: list[fx.Node],
    values: dict[fx.Node, Any],
) -> None:
    def through_int8(node: fx.Node, value: torch.Tensor) -> torch.Tensor:
        chosen = parameters[plan.root(node)]
        return torch.fake_quantize_per_tensor_affine(
            value, chosen.scale, chosen.zero_point, chosen.minimum, chosen.maximum
        )

    quantized = set(plan.quantized)
    interpreter = fx.Interpreter(module, garbage_collect_values=False)
    interpreter.env = values
    with torch.no_grad():
        for node in dependents:
            if node.op == "output":
                continue
            if node is layer.node:
                values[node] = _rounded_product(layer, rounded, values, through_int8)
            else:
                values[node] = interpreter.run_node(node)
            if node is layer.result and node in quantized:
                values[node] = through_int8(node, values[node])


def _rounded_product(
    layer: Layer,
    rounded: Rounded,
    values: dict[fx.Node, Any],
    through_int8: Callable[[fx.Node, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    node = layer.node
    arguments: list[Any] = list(fx.map_arg(node.args, lambda n: values[n]))
    for place, argument in enumerate(node.args):
        if isinstance(argument, fx.Node) and argument in layer.inputs:
            arguments[place] = through_int8(argument, arguments[place])
    if layer.weight is not None:
        integers, scales = rounded.weights[node.name]
        shape = [1] * integers.dim()
        if layer.weight_axis is not None:
            shape[layer.weight_axis] = -1
        arguments[1] = integers.float() * scales.reshape(shape)
    target: Any = node.target
    result: torch.Tensor = target(*arguments, **node.kwargs)
    return result
