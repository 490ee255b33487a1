"""Weights rounded so that each layer's output, not each weight, is as close as it can be.

The float graph and the quantized graph are walked side by side, layer after layer, over all
calibration samples at once. At each layer with weights the inputs it will really get (already
quantized, with the errors of all layers before) and the output it should give are both at hand:

- **adaptive rounding** chooses which way each weight is rounded from the second moments of the
  inputs: the error of one weight is compensated by the next ones (the one-pass scheme of
  "GPTQ", Frantar et al. 2022, which is optimal brain surgery without pruning). No gradient steps,
  no training data, the same answer every time;
- **bias correction** (Nagel et al. 2019) removes what is left of the mean error by channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from edgectl.graph import constant_of
from edgectl.graph.constants import whole
from edgectl.quantization.calibrate import Sample
from edgectl.quantization.operators import CONVOLUTIONS, LINEAR, TRANSPOSED
from edgectl.quantization.parameters import INT8_MAX, ActivationParameters
from edgectl.quantization.plan import Layer, Plan
from edgectl.quantization.rewrite import quantize_weight

__all__ = ["refine", "round_to_nearest"]

q = torch.ops.quantized_decomposed
aten = torch.ops.aten


class _Walk:
    """The values of one graph for all samples, freed after their last use."""

    def __init__(self, module: fx.GraphModule, samples: Sequence[Sample]) -> None:
        self._interpreters = []
        for sample in samples:
            interpreter = fx.Interpreter(module)
            interpreter.args_iter = iter(sample)
            self._interpreters.append(interpreter)

    def __len__(self) -> int:
        return len(self._interpreters)

    def value(self, index: int, node: fx.Node) -> Any:
        return self._interpreters[index].env[node]

    def set(self, index: int, node: fx.Node, value: Any) -> None:
        self._interpreters[index].env[node] = value

    def run(self, index: int, node: fx.Node) -> Any:
        value = self._interpreters[index].run_node(node)
        self._interpreters[index].env[node] = value
        return value

    def free_after(self, node: fx.Node) -> None:
        for interpreter in self._interpreters:
            for used in interpreter.user_to_last_uses.get(node, []):
                interpreter.env.pop(used, None)


def refine(
    module: fx.GraphModule,
    plan: Plan,
    parameters: Mapping[fx.Node, ActivationParameters],
    samples: Sequence[Sample],
    *,
    adaptive_rounding: bool,
    correct_bias: bool,
    follow: float = 1.0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[fx.Node, tuple[torch.Tensor, torch.Tensor]], dict[fx.Node, torch.Tensor]]:
    """Returns (int8 weight and scales, corrected bias) by layer node.

    ``samples`` are all held in memory with the values that are alive at one place of the graph.
    """
    exact, rounded = _Walk(module, samples), _Walk(module, samples)
    weights: dict[fx.Node, tuple[torch.Tensor, torch.Tensor]] = {}
    biases: dict[fx.Node, torch.Tensor] = {}
    nodes = list(module.graph.nodes)
    quantized = {
        node: parameters[plan.root(node)]
        for node in plan.quantized
        if not isinstance(node.meta.get("val"), tuple | list)
    }
    results = {layer.result for layer in plan.layers.values()}
    with torch.no_grad():
        for place, node in enumerate(nodes):
            if node.op == "output":
                break
            for index in range(len(exact)):
                exact.run(index, node)
            layer = plan.layers.get(node)
            if layer is not None and layer.weight is not None:
                _refine_layer(
                    module,
                    layer,
                    exact,
                    rounded,
                    quantized,
                    weights,
                    biases,
                    adaptive_rounding=adaptive_rounding,
                    correct_bias=correct_bias,
                    follow=follow,
                )
            else:
                for index in range(len(rounded)):
                    rounded.run(index, node)
            if node in quantized and (node in results or node.op != "get_attr"):
                for index in range(len(rounded)):
                    value = rounded.value(index, node)
                    rounded.set(index, node, _through_int8(value, quantized[node]))
            exact.free_after(node)
            rounded.free_after(node)
            if progress is not None:
                progress(place + 1, len(nodes))
    return weights, biases


def round_to_nearest(
    module: fx.GraphModule, plan: Plan, parameters: Mapping[fx.Node, ActivationParameters]
) -> dict[fx.Node, tuple[torch.Tensor, torch.Tensor]]:
    """int8 weight and scales by layer node, without any data."""
    weights = {}
    for node, layer in plan.layers.items():
        if layer.weight is None:
            continue
        weight = constant_of(module, layer.weight)
        bias_node = _bias_argument(node)
        bias = None if bias_node is None else constant_of(module, bias_node)
        if weight is not None:
            scale = parameters[plan.root(layer.inputs[0])].scale
            weights[node] = quantize_weight(weight, layer.weight_axis, bias=bias, input_scale=scale)
    return weights


def _through_int8(value: torch.Tensor, chosen: ActivationParameters) -> torch.Tensor:
    arguments = (chosen.scale, chosen.zero_point, chosen.minimum, chosen.maximum)
    return torch.fake_quantize_per_tensor_affine(value, *arguments)


def _bias_argument(node: fx.Node) -> Any:
    return node.args[2] if len(node.args) > 2 else None


def _call(node: fx.Node, x: torch.Tensor, weight: torch.Tensor, bias: Any) -> torch.Tensor:
    rest = tuple(node.args[3:])
    if node.target in (aten.matmul.default, aten.mm.default, aten.bmm.default):
        return torch.matmul(x, weight)
    target: Any = node.target
    result: torch.Tensor = target(x, weight, bias, *rest)
    return result


def _refine_layer(
    module: fx.GraphModule,
    layer: Layer,
    exact: _Walk,
    rounded: _Walk,
    quantized: dict[fx.Node, ActivationParameters],
    weights: dict[fx.Node, tuple[torch.Tensor, torch.Tensor]],
    biases: dict[fx.Node, torch.Tensor],
    *,
    adaptive_rounding: bool,
    correct_bias: bool,
    follow: float,
) -> None:
    node, source = layer.node, layer.inputs[0]
    weight = constant_of(module, layer.weight)
    if weight is None:
        raise TypeError(f"the weight of {node.name} is not a constant")
    bias_node = _bias_argument(node)
    bias = None if bias_node is None else constant_of(module, bias_node)
    scale = quantized[source].scale
    values, scales = quantize_weight(weight, layer.weight_axis, bias=bias, input_scale=scale)
    inputs = [rounded.value(i, source) for i in range(len(rounded))]
    if adaptive_rounding and node.target in CONVOLUTIONS | LINEAR:
        wanted = [exact.value(i, source) for i in range(len(exact))]
        values = _round_adaptively(node, weight, scales, inputs, wanted, follow=follow)
    shape = [1] * weight.dim()
    if layer.weight_axis is not None:
        shape[layer.weight_axis] = -1
    restored = values.float() * scales.reshape(shape)
    weights[node] = (values, scales)
    outputs = [_call(node, x, restored, bias) for x in inputs]
    has_bias = node.target in CONVOLUTIONS | LINEAR | TRANSPOSED
    if correct_bias and has_bias:
        axis = 1 if node.target is not aten.linear.default else outputs[0].dim() - 1
        error = _mean_error(outputs, [exact.value(i, node) for i in range(len(exact))], axis)
        biases[node] = -error if bias is None else bias - error
        spread = [1] * outputs[0].dim()
        spread[axis] = -1
        outputs = [y - error.reshape(spread) for y in outputs]
    for index, output in enumerate(outputs):
        rounded.set(index, node, output)
    if layer.weight is not None and layer.weight in quantized:
        raise TypeError("a weight cannot be an activation too")


def _mean_error(outputs: list[torch.Tensor], wanted: list[torch.Tensor], axis: int) -> torch.Tensor:
    dims = [d for d in range(outputs[0].dim()) if d != axis]
    total = sum((o - w).double().mean(dims) for o, w in zip(outputs, wanted, strict=True))
    return torch.as_tensor(total / len(outputs)).float()


def _columns(node: fx.Node, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The layer's inputs as a matrix for each group: [groups, positions, inputs of a weight]."""
    if node.target is aten.linear.default:
        return x.reshape(1, -1, x.shape[-1])
    defaults: list[Any] = [None, None, None, 1, 0, 1, 1]
    args = [*node.args, *defaults[len(node.args) :]]
    stride, padding, dilation, groups = (args[i] for i in range(3, 7))
    if weight.dim() == 3:  # one-dimensional: a row of pixels
        x = x.unsqueeze(2)
        stride, padding, dilation = (
            [fill, *(v if isinstance(v, list | tuple) else [v])]
            for v, fill in ((stride, 1), (padding, 0), (dilation, 1))
        )
    kernel = (1, weight.shape[2]) if weight.dim() == 3 else tuple(weight.shape[2:])
    columns = F.unfold(x, kernel, dilation=dilation, padding=padding, stride=stride)
    n, _, positions = columns.shape
    columns = columns.reshape(n, groups, -1, positions).permute(1, 0, 3, 2)
    return columns.reshape(groups, n * positions, -1)


def _round_adaptively(
    node: fx.Node,
    weight: torch.Tensor,
    scales: torch.Tensor,
    inputs: list[torch.Tensor],
    wanted: list[torch.Tensor],
    *,
    follow: float,
) -> torch.Tensor:
    """The int8 weight whose layer output on ``inputs`` is nearest to the one on ``wanted``."""
    groups = 1
    if node.target in CONVOLUTIONS and len(node.args) > 6:
        groups = whole(node.args[6])
    rows = weight.reshape(groups, weight.shape[0] // groups, -1).double()
    depth = rows.shape[-1]
    own = torch.zeros(groups, depth, depth, dtype=torch.float64)
    cross = torch.zeros_like(own)
    for x, exact in zip(inputs, wanted, strict=True):
        columns = _columns(node, x, weight)
        own += (columns.transpose(1, 2) @ columns).double()
        if follow:
            difference = _columns(node, exact, weight) - columns
            cross += (difference.transpose(1, 2) @ columns).double()
    damping = 0.01 * own.diagonal(dim1=1, dim2=2).mean(-1).clamp_min(1e-12)
    own += damping.reshape(-1, 1, 1) * torch.eye(depth, dtype=torch.float64)
    target = rows
    if follow:
        # Least squares towards the exact output: (W X_exact - W' X)^2 -> W' = W + W D X^T H^-1.
        target = rows + follow * torch.linalg.solve(own, rows @ cross, left=False)
    steps = scales.double().reshape(groups, -1)
    return _compensate(target, steps, own).reshape(weight.shape).to(torch.int8)


def _compensate(rows: torch.Tensor, steps: torch.Tensor, moments: torch.Tensor) -> torch.Tensor:
    """Rounds column by column; each error is passed on to the columns still to come.

    rows [groups, outputs, depth], steps [groups, outputs], moments [groups, depth, depth].
    """
    depth = rows.shape[-1]
    order = moments.diagonal(dim1=1, dim2=2).argsort(dim=1, descending=True)
    index = order.unsqueeze(1).expand_as(rows)
    rows = rows.gather(2, index)
    moments = moments.gather(1, order.unsqueeze(2).expand_as(moments))
    moments = moments.gather(2, order.unsqueeze(1).expand_as(moments))
    inverse = torch.linalg.inv(moments)
    upper = torch.linalg.cholesky(inverse, upper=True)
    rounded = torch.zeros_like(rows)
    for start in range(0, depth, 64):
        stop = min(start + 64, depth)
        errors = torch.zeros_like(rows[:, :, start:stop])
        for column in range(start, stop):
            value = rows[:, :, column]
            integer = torch.round(value / steps).clamp(-INT8_MAX, INT8_MAX)
            rounded[:, :, column] = integer
            pivot = upper[:, column, column].unsqueeze(1)
            error = (value - integer * steps) / pivot
            errors[:, :, column - start] = error
            rows[:, :, column:stop] -= error.unsqueeze(2) * upper[:, column, column:stop].unsqueeze(
                1
            )
        rows[:, :, stop:] -= errors @ upper[:, start:stop, stop:]
    return torch.zeros_like(rounded).scatter(2, index, rounded)
