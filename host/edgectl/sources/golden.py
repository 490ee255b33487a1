"""The calls a model is judged by: made on the original module, in eager mode, before anything.

A model that writes to its buffers or inputs is called three times in a row, with other inputs
each time, so that a state that is lost or carried wrongly shows. Each call gets fresh copies of
its inputs, so that what is recorded is what the model was given.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from edgectl.errors import UnsupportedModelError
from edgectl.records import ExampleCall
from edgectl.sources.examples import varied
from edgectl.sources.loaded import Arguments
from edgectl.sources.naming import output_names
from edgectl.sources.tensors import from_tensor, to_tensor

__all__ = ["STATEFUL_CALLS", "call_watched", "fresh", "make_calls", "successive_arguments"]

STATEFUL_CALLS = 3


def fresh(module: nn.Module) -> nn.Module:
    """A copy whose state is its own.

    Raises:
        UnsupportedModelError: the module cannot be copied.
    """
    try:
        with warnings.catch_warnings():
            # torch warns of itself when an exported module is copied.
            warnings.simplefilter("ignore")
            return copy.deepcopy(module)
    except Exception as error:
        raise UnsupportedModelError(
            f"The module cannot be copied: {str(error).splitlines()[0]}",
            cause="It holds a tensor that is the result of a computation (old weight_norm does).",
            next_step="Remove it before saving, e.g. with torch.nn.utils.remove_weight_norm.",
        ) from error


def call_watched(module: nn.Module, arguments: Arguments) -> tuple[Any, bool]:
    """One eager call with copies of the arguments: its result, and whether it wrote to a buffer
    or to an input.

    The graph of ``torch.export.export`` does not say so before it is made functional; torch's
    version counters do, through views as well.
    """
    args, kwargs = pytree.tree_map_only(
        torch.Tensor, lambda t: t.detach().clone(), (arguments.args, arguments.kwargs)
    )
    before = dict(module.named_buffers())
    watched = [*before.values(), *pytree.tree_leaves((args, kwargs))]
    versions = [_version(item) for item in watched]
    with torch.no_grad():
        result = module(*args, **kwargs)
    wrote = versions != [_version(item) for item in watched]
    # A buffer may also be replaced: self.hidden = new_hidden.
    after = dict(module.named_buffers())
    replaced = any(after.get(name) is not buffer for name, buffer in before.items())
    return result, wrote or replaced


def _version(item: Any) -> int:
    if not isinstance(item, torch.Tensor) or item.is_inference():
        return 0
    return int(item._version)  # noqa: SLF001  # the only counter of writes that torch has


def successive_arguments(first: Arguments, count: int, *, seed: int) -> list[Arguments]:
    """``first`` and its seeded variations."""
    made = [first]
    for call in range(1, count):
        leaves, spec = pytree.tree_flatten((first.args, first.kwargs))
        leaves = [
            to_tensor(varied(from_tensor(leaf), seed=seed + 1000 * call + index))
            if isinstance(leaf, torch.Tensor)
            else leaf
            for index, leaf in enumerate(leaves)
        ]
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        made.append(Arguments(args=args, kwargs=kwargs))
    return made


def make_calls(module: nn.Module, arguments: list[Arguments]) -> tuple[ExampleCall, ...]:
    """Calls the module once per element, in order, and records it."""
    calls = []
    for each in arguments:
        inputs = tuple(
            from_tensor(leaf)
            for leaf in pytree.tree_leaves((each.args, each.kwargs))
            if isinstance(leaf, torch.Tensor)
        )
        result, _ = call_watched(module, each)
        outputs = tuple(_recorded(name, leaf) for name, leaf in output_names(result))
        calls.append(ExampleCall(inputs=inputs, outputs=outputs))
    return tuple(calls)


def _recorded(name: str, leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return from_tensor(leaf)
    if leaf is None or isinstance(leaf, (bool, int, float, str)):
        return leaf
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    raise UnsupportedModelError(
        f"Output {name!r} is a {type(leaf).__name__}.",
        next_step="Return tensors (in tuples, lists or dicts) from forward.",
    )
