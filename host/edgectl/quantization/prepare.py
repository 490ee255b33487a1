"""An exported program as the graph that the quantizer works on.

The graph keeps whole layers (``conv2d``, ``linear``, ``gelu``); what would hide or split integer
arithmetic is rewritten first, each rewrite with the same values as before:

- batch normalisation goes into the layer before it, or becomes a 1x1 depthwise convolution;
- attention becomes two products with a softmax between;
- ``padding="same"`` becomes an explicit pad; division by a constant becomes multiplication;
- ``relu(max_pool(x))`` becomes ``max_pool(relu(x))``, so that the relu fuses with a convolution.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from edgectl.errors import UnsupportedModelError
from edgectl.graph import fold_batch_norms, new_constant, quiet
from edgectl.graph.batch_norm import normalisation_of, normalised_value
from edgectl.graph.constants import constant_of

__all__ = ["module_path", "prepare"]

aten = torch.ops.aten

_IDENTITIES = {
    aten.clone.default,
    aten.alias.default,
    aten.detach.default,
    aten.lift_fresh_copy.default,
    aten.contiguous.default,
}
_RELUS = {aten.relu.default, aten.hardtanh.default, aten.relu6.default}


def module_path(node: fx.Node) -> str:
    """The dotted path of the module that ``node`` came from (``features.3.conv``)."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = str(list(stack.values())[-1][0])
    return path.replace("L['self'].", "").split("@", 1)[0]


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Scaled dot-product attention spelled as products and a softmax."""
    if enable_gqa or dropout_p:
        raise UnsupportedModelError("Attention with grouped heads or dropout cannot be quantized.")
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    if is_causal:
        allowed = torch.ones(
            (query.shape[-2], key.shape[-2]), dtype=torch.bool, device=query.device
        ).tril()
        scores = scores.masked_fill(~allowed, float("-inf"))
    if attn_mask is None:
        return torch.matmul(torch.softmax(scores, dim=-1), value)
    if attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    else:
        scores = scores + attn_mask
    # A row that may look at nothing gives zeros in PyTorch, not NaN.
    weights = torch.nan_to_num(torch.softmax(scores, dim=-1), nan=0.0)
    return torch.matmul(weights, value)


def prepare(program: ExportedProgram) -> fx.GraphModule:
    """A graph module with the program's values, ready to be observed (parameters as attributes)."""
    table = {aten.scaled_dot_product_attention.default: _attention}
    with quiet():
        module = program.run_decompositions(table).module(check_guards=False)
    if not isinstance(module, fx.GraphModule):
        raise TypeError(f"expected a graph module, got {type(module).__name__}")
    _drop_identities(module)
    fold_batch_norms(module)
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            continue
        _explicit_padding(module, node)
        _multiply_instead_of_divide(node)
        _pool_after_relu(module, node)
        _global_mean(module, node)
        _normalisation_as_convolution(module, node)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    return module


def _drop_identities(module: fx.GraphModule) -> None:
    for node in list(module.graph.nodes):
        if node.target in (aten.view.default, aten._unsafe_view.default):  # noqa: SLF001
            node.target = aten.reshape.default  # a view needs the layout that a clone made
        dropout = node.target is aten.dropout.default and not node.args[2]
        if dropout or node.target in _IDENTITIES:
            # A clone that the graph returns may stand for a buffer's value; leave those alone.
            if any(user.op == "output" for user in node.users) and not dropout:
                continue
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)


def _call(module: fx.GraphModule, before: fx.Node, target: Any, *args: Any) -> fx.Node:
    """A new node before ``before`` with its metadata (the layer it belongs to) and own value."""
    with module.graph.inserting_before(before):
        node = module.graph.call_function(target, args)
    values = fx.map_arg(args, lambda n: n.meta["val"])
    with _fake_mode(before):
        value = target(*values)
    node.meta = {**before.meta, "val": value}
    return node


def _fake_mode(node: fx.Node) -> Any:
    value = node.meta["val"]
    return getattr(value, "fake_mode", torch.no_grad())


def _explicit_padding(module: fx.GraphModule, node: fx.Node) -> None:
    if node.target not in (aten.conv1d.padding, aten.conv2d.padding):
        return
    args: list[Any] = [*node.args]
    defaults: list[Any] = [None, None, None, [1], "valid", [1], 1]
    args += defaults[len(args) :]
    x, weight, bias, stride, padding, dilation, groups = args
    pads: list[int] = []
    sizes = list(weight.meta["val"].shape[2:])
    dilation = list(dilation) * (len(sizes) if len(dilation) == 1 else 1)
    if padding == "same":
        for size, step in zip(reversed(sizes), reversed(dilation), strict=True):
            total = step * (size - 1)
            pads += [total // 2, total - total // 2]
    if any(pads):
        x = _call(module, node, aten.constant_pad_nd.default, x, pads, 0.0)
    one_d = node.target is aten.conv1d.padding
    node.target = aten.conv1d.default if one_d else aten.conv2d.default
    node.args = (x, weight, bias, stride, [0] * len(sizes), dilation, groups)


def _multiply_instead_of_divide(node: fx.Node) -> None:
    if node.target is aten.div.Tensor and isinstance(node.args[1], int | float):
        node.target = aten.mul.Tensor
        node.args = (node.args[0], 1.0 / float(node.args[1]))
        node.kwargs = {}


def _pool_after_relu(module: fx.GraphModule, node: fx.Node) -> None:
    if node.target not in _RELUS:
        return
    pool = node.args[0]
    if not isinstance(pool, fx.Node) or len(pool.users) != 1:
        return
    if pool.target not in (aten.max_pool2d.default, aten.max_pool1d.default):
        return
    source = pool.args[0]
    first = _call(module, pool, node.target, source, *node.args[1:])
    first.meta = {**node.meta, "val": first.meta["val"]}
    pool.args = (first, *pool.args[1:])
    node.replace_all_uses_with(pool)
    module.graph.erase_node(node)


def _global_mean(module: fx.GraphModule, node: fx.Node) -> None:
    if node.target is not aten.adaptive_avg_pool2d.default:
        return
    size: Any = node.args[1]
    if list(size) == [1, 1]:
        dims = [node.meta["val"].dim() - 2, node.meta["val"].dim() - 1]
        mean = _call(module, node, aten.mean.dim, node.args[0], dims, True)
        node.replace_all_uses_with(mean)
        module.graph.erase_node(node)


def _normalisation_as_convolution(module: fx.GraphModule, node: fx.Node) -> None:
    """A batch normalisation that no layer took up: one multiplication and addition by channel."""
    constants = normalisation_of(module, node)
    value = normalised_value(node) if constants else None
    source = node.args[0]
    if constants is None or value is None or not isinstance(source, fx.Node):
        return
    rank = source.meta["val"].dim()
    if rank not in (3, 4):
        return
    scale, shift = (c.to(source.meta["val"].dtype) for c in constants)
    name = module_path(node) or node.name
    weight = new_constant(module, f"{name}_scale", scale.reshape(-1, 1, *[1] * (rank - 2)), node)
    bias = new_constant(module, f"{name}_shift", shift, node)
    for constant in (weight, bias):
        fake = getattr(source.meta["val"], "fake_mode", None)
        if fake is not None:
            tensor = constant_of(module, constant)
            constant.meta["val"] = fake.from_tensor(tensor, static_shapes=True)
    ones = [1] * (rank - 2)
    target = aten.conv1d.default if rank == 3 else aten.conv2d.default
    layer = _call(
        module, node, target, source, weight, bias, ones, [0] * (rank - 2), ones, scale.numel()
    )
    value.replace_all_uses_with(layer)
