"""Recipes that need no calibration data: weights only, dynamic activations, half precision."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from edgectl.graph import constant_of
from edgectl.quantization.operators import LINEAR, Kind, kind_of, macs_of, weight_of
from edgectl.quantization.plan import kept_float
from edgectl.quantization.prepare import prepare
from edgectl.quantization.recipe import Recipe
from edgectl.quantization.rewrite import quantize_weight, replace_weight

__all__ = ["rewrite_otherwise"]

q = torch.ops.quantized_decomposed
aten = torch.ops.aten

# torch's own smallest scale for activations.
_EPSILON = 1.1920928955078125e-07


def rewrite_otherwise(program: Any, recipe: Recipe) -> tuple[fx.GraphModule, dict[str, Any]]:
    """The program's graph under a recipe that is not static, and what to report of it."""
    module = prepare(program)
    total = sum(macs_of(node) for node in module.graph.nodes)
    if recipe.method == "half":
        _halve(module)
        integer = 0
    else:
        integer = _quantize_weights(module, recipe)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    return module, {
        "calibration": "none",
        "warnings": [],
        "integer_macs": integer,
        "macs": total,
        "integer_macs_share": integer / total if total else 1.0,
        "layers": [],
        "kept_float": list(recipe.keep_float),
        "costs": [],
    }


def _quantize_weights(module: fx.GraphModule, recipe: Recipe) -> int:
    integer = 0
    for node in list(module.graph.nodes):
        if kind_of(node) is not Kind.PRODUCT or kept_float(node, recipe):
            continue
        found = weight_of(node)
        weight = constant_of(module, found[0]) if found else None
        if found is None or weight is None:
            continue
        macs = macs_of(node)
        if recipe.method == "dynamic" and node.target in LINEAR:
            _quantize_input(module, node)
            integer += macs
        replace_weight(module, node, found[0], found[1], quantize_weight(weight, found[1]))
    return integer


def _quantize_input(module: fx.GraphModule, node: fx.Node) -> None:
    """Measures the input's range on each call (symmetric, by tensor)."""
    source: Any = node.args[0]
    with module.graph.inserting_before(node):
        chosen = module.graph.call_function(
            q.choose_qparams_symmetric.tensor, (source, -127, 127, _EPSILON, torch.int8)
        )
        scale = module.graph.call_function(operator.getitem, (chosen, 0))
        zero = module.graph.call_function(operator.getitem, (chosen, 1))
        arguments = (scale, zero, -127, 127, torch.int8)
        stored = module.graph.call_function(q.quantize_per_tensor.tensor, (source, *arguments))
        restored = module.graph.call_function(q.dequantize_per_tensor.tensor, (stored, *arguments))
    for new in (chosen, scale, zero, stored, restored):
        new.meta = {k: v for k, v in node.meta.items() if k in ("nn_module_stack", "stack_trace")}
    node.args = (restored, *node.args[1:])


def _halve(module: fx.GraphModule) -> None:
    """float16 inside, float32 at the border."""
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        if value.dtype == torch.float32:
            owner = module
            *path, last = name.split(".")
            for part in path:
                owner = getattr(owner, part)
            setattr(owner, last, _like(value))
    for node in list(module.graph.nodes):
        value = node.meta.get("val")
        if node.op == "placeholder" and getattr(value, "dtype", None) == torch.float32:
            with module.graph.inserting_after(_last_placeholder(module)):
                cast = module.graph.call_function(aten.to.dtype, (node, torch.float16))
            for user in list(node.users):
                if user is not cast:
                    user.replace_input_with(node, cast)
    output = module.graph.output_node()

    def back(node: fx.Node) -> fx.Node:
        if getattr(node.meta.get("val"), "dtype", None) != torch.float32:
            return node
        with module.graph.inserting_before(output):
            cast: fx.Node = module.graph.call_function(aten.to.dtype, (node, torch.float32))
        return cast

    output.args = (fx.map_arg(output.args[0], back),)


def _like(value: torch.Tensor) -> torch.Tensor:
    half = value.detach().half()
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(half, requires_grad=False)
    return half


def _last_placeholder(module: fx.GraphModule) -> fx.Node:
    last: fx.Node = [n for n in module.graph.nodes if n.op == "placeholder"][-1]
    return last
