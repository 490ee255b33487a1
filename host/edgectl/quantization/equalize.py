"""Cross-layer equalisation (Nagel et al. 2019, "Data-free quantization through weight
equalization and bias correction").

Between two convolutions with nothing but a relu in between, channel ``c`` may be divided by
``s_c`` behind the first and multiplied by it in front of the second; with
``s = sqrt(range_1 * range_2) / range_2`` both use their scales equally well. A relu6 allows it
only for channels that never reach six, so it is left alone unless the data say so.
"""

from __future__ import annotations

import torch
from torch import fx

from edgectl.graph import constant_of, new_constant
from edgectl.graph.constants import whole

__all__ = ["equalize"]

aten = torch.ops.aten

_LAYERS = (aten.conv2d.default, aten.conv1d.default, aten.linear.default)


def equalize(module: fx.GraphModule) -> int:
    """Equalises every chain of two layers in place; returns how many pairs."""
    count = 0
    for node in list(module.graph.nodes):
        if node.target not in _LAYERS or len(node.users) != 1:
            continue
        (user,) = node.users
        while user.target is aten.relu.default and len(user.users) == 1:
            (user,) = user.users
        if user.target in _LAYERS and user.args[0] is not node.args[1]:
            count += _equalize_pair(module, node, user)
    if count:
        module.graph.eliminate_dead_code()
        module.recompile()
    return count


def _groups(node: fx.Node) -> int:
    if node.target is aten.linear.default:
        return 1
    return whole(node.args[6]) if len(node.args) > 6 else 1


def _equalize_pair(module: fx.GraphModule, first: fx.Node, second: fx.Node) -> bool:
    weight, follower = constant_of(module, first.args[1]), constant_of(module, second.args[1])
    if weight is None or follower is None:
        return False
    groups, channels = _groups(second), weight.shape[0]
    depthwise = groups == channels and follower.shape[1] == 1
    if groups != 1 and not depthwise:
        return False
    if not depthwise and follower.shape[1] != channels:
        return False
    own = weight.abs().flatten(1).amax(1)
    if depthwise:
        per_channel = follower.shape[0] // channels
        next_range = follower.reshape(channels, per_channel, -1).abs().amax((1, 2))
    else:
        next_range = follower.abs().transpose(0, 1).flatten(1).amax(1)
    usable = (own > 1e-8) & (next_range > 1e-8)
    factor = torch.where(usable, torch.sqrt(own / next_range.clamp_min(1e-8)), torch.ones_like(own))
    factor = factor.clamp(1e-2, 1e2)
    shape = [-1] + [1] * (weight.dim() - 1)
    _set(module, first, 1, weight / factor.reshape(shape))
    if len(first.args) > 2 and first.args[2] is not None:
        bias = constant_of(module, first.args[2])
        if bias is not None:
            _set(module, first, 2, bias / factor)
    if depthwise:
        spread = factor.repeat_interleave(follower.shape[0] // channels)
        _set(module, second, 1, follower * spread.reshape([-1] + [1] * (follower.dim() - 1)))
    else:
        _set(module, second, 1, follower * factor.reshape([1, -1] + [1] * (follower.dim() - 2)))
    return True


def _set(module: fx.GraphModule, node: fx.Node, place: int, value: torch.Tensor) -> None:
    old = node.args[place]
    name = str(old.target) if isinstance(old, fx.Node) else node.name
    new = new_constant(module, f"{name}_equal", value, node)
    if isinstance(old, fx.Node):
        new.meta["val"] = old.meta["val"]
    node.args = (*node.args[:place], new, *node.args[place + 1 :])
