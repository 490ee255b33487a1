"""int8 at the model's own border: the caller quantizes inputs and dequantizes outputs.

float border:  x -> q -> [dq ... q] -> dq -> y
int8 border:        x -> [dq ... q] -> y
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

__all__ = ["make_boundary_int8", "quantize_array"]

q = torch.ops.quantized_decomposed


def make_boundary_int8(module: fx.GraphModule) -> dict[str, dict[str, Any]]:
    """Removes the outermost quantize and dequantize nodes in place.

    Returns how to read each border value that is int8 now: ``scale`` and ``zero_point`` by
    input name, and by ``output.<index>``. Values that are not int8 inside stay float.
    """
    found: dict[str, dict[str, Any]] = {}
    for node in list(module.graph.nodes):
        if node.op == "placeholder" and len(node.users) == 1:
            (user,) = node.users
            if user.target is q.quantize_per_tensor.default:
                found[node.name] = {"scale": user.args[1], "zero_point": user.args[2]}
                user.replace_all_uses_with(node)
                module.graph.erase_node(user)
    output = module.graph.output_node()
    results: list[Any] = []
    returned: Any = output.args[0]
    several = isinstance(returned, tuple | list)
    leaves = list(returned) if several else [returned]
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, fx.Node) and leaf.target is q.dequantize_per_tensor.default:
            found[f"output.{place}"] = {"scale": leaf.args[1], "zero_point": leaf.args[2]}
            leaf = leaf.args[0]
        results.append(leaf)
    output.args = (tuple(results) if several else results[0],)
    module.graph.eliminate_dead_code()
    module.recompile()
    return found


def quantize_array(value: torch.Tensor, parameters: dict[str, Any]) -> torch.Tensor:
    """A float input as the int8 model takes it."""
    result: torch.Tensor = q.quantize_per_tensor.default(
        value, parameters["scale"], parameters["zero_point"], -128, 127, torch.int8
    )
    return result
