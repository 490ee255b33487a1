"""Dimensions that may vary: from ``--input-spec`` and ``--dynamic`` to torch.export's terms.

A name in a spec (``ids=batchx16xi64``) is the same size wherever it stands. Without specs, a
``--dynamic`` range is that of dimension 0 of every input.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import Dim, ShapesCollection
from torch.utils import _pytree as pytree

from edgectl.errors import UsageError
from edgectl.sources.loaded import Arguments
from edgectl.sources.naming import input_names
from edgectl.sources.options import LoadOptions

__all__ = ["with_dynamic"]

_Axes = dict[int, Any]


def with_dynamic(
    names: list[str], arguments: Arguments, options: LoadOptions
) -> tuple[Arguments, ShapesCollection | None]:
    """Arguments to export with, and which of their dimensions vary (``None`` if none does).

    torch.export takes a size of 1 for a constant, so a varying dimension of size 1 is doubled.

    Raises:
        UsageError: a range belongs to no dimension of any input.
    """
    leaves, tree = pytree.tree_flatten((arguments.args, arguments.kwargs))
    named = input_names(names, arguments)
    tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    if options.input_specs:
        placed = _from_specs(options, [named[i][0] for i in tensors], tensors)
    else:
        placed = _first_dimension(options, [i for i in tensors if leaves[i].dim()])
    if not placed:
        return arguments, None
    shapes = ShapesCollection()  # type: ignore[no-untyped-call]
    for index, axes in placed.items():
        for axis in axes:
            if leaves[index].shape[axis] == 1:
                leaves[index] = torch.cat([leaves[index]] * 2, dim=axis)
        shapes[leaves[index]] = axes
    args, kwargs = pytree.tree_unflatten(leaves, tree)
    return Arguments(args=args, kwargs=kwargs), shapes


def _from_specs(options: LoadOptions, names: list[str], places: list[int]) -> dict[int, _Axes]:
    dims = _dims(options)
    placed: dict[int, _Axes] = {}
    used: set[str] = set()
    position = 0
    for number, spec in enumerate(options.input_specs):
        if spec.name in names:
            place = places[names.index(spec.name)]
        else:
            place, position = places[position], position + 1
        for axis, size in enumerate(spec.shape):
            if isinstance(size, str):
                used.add(size)
                placed.setdefault(place, {})[axis] = dims[size]
            elif size is None:
                placed.setdefault(place, {})[axis] = Dim(f"free_{number}_{axis}")
    unused = sorted(set(dims) - used)
    if unused:
        raise UsageError(
            f"--dynamic {unused[0]} names no dimension of any --input-spec.",
            next_step=f"Write it into the spec, as {unused[0]}x3x224x224xf32.",
        )
    return placed


def _first_dimension(options: LoadOptions, places: list[int]) -> dict[int, _Axes]:
    if len(options.dynamic) > 1:
        raise UsageError(
            "Several --dynamic ranges need --input-spec to say where they belong.",
            next_step="Write the names into the specs, as ids=batchxlengthxi64.",
        )
    return {place: {0: dim} for dim in _dims(options).values() for place in places}


def _dims(options: LoadOptions) -> dict[str, Any]:
    return {
        item.name: Dim(item.name, min=item.minimum, max=item.maximum) for item in options.dynamic
    }
