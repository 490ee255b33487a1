"""From what the user gave (files, specs) and what the source knows to the arguments of one call."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from edgectl.errors import UsageError
from edgectl.sources.examples import example_array
from edgectl.sources.input_specs import DimensionRange, InputSpec
from edgectl.sources.loaded import Arguments
from edgectl.sources.naming import input_names, signature_of
from edgectl.sources.options import GivenInput, LoadOptions
from edgectl.sources.tensors import dtype_name, shape_text, to_tensor

__all__ = ["by_forward", "from_options", "overridden", "without_indices"]


def from_options(module: nn.Module, options: LoadOptions) -> Arguments:
    """Arguments for a module of which nothing else is known.

    Raises:
        UsageError: neither specs nor files were given, they contradict each other, or they do
            not fit the parameters of ``forward``.
    """
    if not options.inputs and not options.input_specs:
        raise UsageError(
            "Nothing says what the model's inputs look like.",
            cause="A module alone knows no input shapes.",
            next_step="Add --input-spec 1x3x224x224xf32 (once per input), or --input file.npy.",
        )
    given = _merged(options)
    args = [tensor for name, tensor in given if name is None]
    kwargs = {name: tensor for name, tensor in given if name is not None}
    return by_forward(module, Arguments(args=tuple(args), kwargs=kwargs))


def by_forward(module: nn.Module, arguments: Arguments) -> Arguments:
    """The same arguments, positional as far as ``forward`` allows.

    Raises:
        UsageError: they do not fit the parameters of ``forward``.
    """
    signature = signature_of(module)
    if signature is None:
        return arguments
    try:
        bound = signature.bind(*arguments.args, **arguments.kwargs)
    except TypeError as error:
        raise UsageError(
            f"The inputs do not fit forward{signature}: {error}.",
            cause=f"{len(arguments.args) + len(arguments.kwargs)} given.",
            next_step="Give one --input-spec or --input per parameter, in order or as "
            "name=1x3x224x224xf32.",
        ) from error
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    contiguous = True
    for parameter in signature.parameters.values():
        if parameter.name not in bound.arguments:
            # A skipped parameter keeps its default; what follows must be named.
            contiguous = False
            continue
        value = bound.arguments[parameter.name]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            args += value
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            kwargs |= value
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY or not contiguous:
            kwargs[parameter.name] = value
        else:
            args.append(value)
    return Arguments(args=tuple(args), kwargs=kwargs)


def overridden(names: list[str], arguments: Arguments, options: LoadOptions) -> Arguments:
    """The source's own example with the user's files and specs in the places they name.

    Raises:
        UsageError: a name is unknown, there are too many, or a shape or dtype is another one.
    """
    if not options.inputs and not options.input_specs:
        return arguments
    leaves = input_names(names, arguments)
    values = [leaf for _, leaf in leaves]
    tensors = [i for i, leaf in enumerate(values) if isinstance(leaf, torch.Tensor)]
    known = [leaves[i][0] for i in tensors]
    specs = {spec.name for spec in options.input_specs}
    taken: list[int] = []
    for name, given in _given(options):
        if name is None:
            place = next((i for i in tensors if i not in taken), None)
            if place is None:
                raise _too_many(known, options)
        elif name in known:
            place = tensors[known.index(name)]
        else:
            raise UsageError(
                f"The model has no input {name!r}.",
                next_step=f"Its inputs are: {', '.join(known) or 'none'}.",
            )
        taken.append(place)
        expected = values[place]
        tensor = (
            given
            if isinstance(given, torch.Tensor)
            else to_tensor(given.fitted(tuple(expected.shape), dtype_name(expected.dtype)))
        )
        same = tensor.shape == expected.shape or bool(options.input_specs and name in specs)
        if tensor.dtype != expected.dtype or tensor.dim() != expected.dim() or not same:
            raise _other_tensor(leaves[place][0], tensor, expected)
        values[place] = tensor
    _, spec = pytree.tree_flatten((arguments.args, arguments.kwargs))
    args, kwargs = pytree.tree_unflatten(values, spec)
    return Arguments(args=args, kwargs=kwargs)


def without_indices(arguments: Arguments) -> Arguments | None:
    """The same with zeros in all integer tensors; ``None`` if there is no such tensor."""
    leaves, tree = pytree.tree_flatten((arguments.args, arguments.kwargs))
    integers = [isinstance(leaf, torch.Tensor) and not leaf.is_floating_point() for leaf in leaves]
    if not any(integers):
        return None
    changed = [
        torch.zeros_like(leaf) if integer else leaf
        for leaf, integer in zip(leaves, integers, strict=True)
    ]
    args, kwargs = pytree.tree_unflatten(changed, tree)
    return Arguments(args=args, kwargs=kwargs)


def _given(options: LoadOptions) -> Sequence[tuple[str | None, torch.Tensor | GivenInput]]:
    if options.input_specs:
        return _merged(options)
    return [(given.name, given) for given in options.inputs]


def _merged(options: LoadOptions) -> list[tuple[str | None, torch.Tensor]]:
    """Specs and files side by side: a file is the data of the spec of its name or position."""
    inputs = list(options.inputs)
    if not options.input_specs:
        return [(given.name, to_tensor(given.fitted(None, "float32"))) for given in inputs]
    merged: list[tuple[str | None, torch.Tensor]] = []
    for index, spec in enumerate(options.input_specs):
        given = _taken(inputs, spec)
        if given is None:
            array = example_array(spec, options.dynamic, seed=options.seed + index)
            merged.append((spec.name, to_tensor(array)))
        else:
            sizes = [size if isinstance(size, int) else None for size in spec.shape]
            # A batch that may vary is a batch of one picture.
            sizes = [1, *sizes[1:]] if len(sizes) == 4 and sizes[0] is None else sizes
            array = given.fitted(sizes, spec.dtype)
            _check(spec, array, spec.name or given.name, options.dynamic)
            merged.append((spec.name or given.name, to_tensor(array)))
    if inputs:
        raise UsageError(
            f"There are {len(options.inputs)} inputs and {len(options.input_specs)} input specs.",
            next_step="Give one --input-spec for each, or none.",
        )
    return merged


def _taken(inputs: list[GivenInput], spec: InputSpec) -> GivenInput | None:
    named = next((i for i in inputs if i.name is not None and i.name == spec.name), None)
    chosen = named or next((i for i in inputs if i.name is None or spec.name is None), None)
    if chosen is not None:
        inputs.remove(chosen)
    return chosen


def _check(
    spec: InputSpec, array: np.ndarray, name: str | None, dynamic: Sequence[DimensionRange]
) -> None:
    ranges = {item.name: item for item in dynamic}
    fits = array.ndim == len(spec.shape) and array.dtype.name == spec.dtype
    for size, wanted in zip(array.shape, spec.shape, strict=False):
        if isinstance(wanted, int):
            fits = fits and size == wanted
        elif wanted is not None and wanted in ranges:
            limit = ranges[wanted].maximum
            fits = fits and size >= ranges[wanted].minimum and (limit is None or size <= limit)
    if not fits:
        raise UsageError(
            f"Input {name or 'by position'} is {shape_text(array)}, "
            f"but its --input-spec says {spec}.",
            next_step="Correct one of the two.",
        )


def _too_many(known: list[str], options: LoadOptions) -> UsageError:
    count = max(len(options.inputs), len(options.input_specs))
    return UsageError(
        f"{count} inputs were given and the model takes {len(known)}: "
        f"{', '.join(known) or 'none'}.",
        next_step="Give one --input per input of the model, in that order, or name them.",
    )


def _other_tensor(name: str, tensor: torch.Tensor, expected: torch.Tensor) -> UsageError:
    if tensor.dtype != expected.dtype:
        wanted = dtype_name(expected.dtype)
        return UsageError(
            f"Input {name!r} is {dtype_name(tensor.dtype)}; the model takes {wanted}.",
            next_step=f'Save it as such: np.save(file, array.astype("{wanted}")).',
        )
    return UsageError(
        f"Input {name!r} is {shape_text(tensor)}; the model takes {shape_text(expected)}.",
        next_step="Bring the input into that shape, or say another one with --input-spec.",
    )
