"""Half-precision modules are computed in float32, unless somebody asks otherwise.

Most Raspberry Pis have no half-precision arithmetic (only the Pi 5 has), and none has bfloat16.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils import _pytree as pytree

from edgectl.sources.loaded import Arguments

__all__ = ["upcast"]

_HALVES = (torch.float16, torch.bfloat16)


def upcast(module: nn.Module, arguments: Arguments, notes: list[str]) -> Arguments:
    """Turns the module (in place) and its arguments to float32 if it has half-precision weights;
    says so in ``notes``.
    """
    tensors = [*module.parameters(), *module.buffers()]
    found = sorted({str(t.dtype).removeprefix("torch.") for t in tensors if t.dtype in _HALVES})
    if not found:
        return arguments
    module.float()
    notes.append(f"weights are {' and '.join(found)}; computed in float32")
    args, kwargs = pytree.tree_map_only(
        torch.Tensor,
        lambda t: t.float() if t.dtype in _HALVES else t,
        (arguments.args, arguments.kwargs),
    )
    return Arguments(args=args, kwargs=kwargs)
