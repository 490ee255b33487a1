"""Flat names for nested inputs and outputs: ``boxes.0``, ``logits``, ``output_1``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch.utils import _pytree as pytree

from edgectl.sources.loaded import Arguments

__all__ = ["input_names", "output_names", "parameter_names"]


def parameter_names(forward: Callable[..., Any], arguments: Arguments) -> list[str]:
    """One name per positional argument, from forward's parameters (``rest.0`` for ``*rest``)."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            rest = len(arguments.args) - len(names)
            names += [f"{parameter.name}.{i}" for i in range(rest)]
        elif parameter.kind in (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        ):
            names.append(parameter.name)
    names += [f"input_{i}" for i in range(len(names), len(arguments.args))]
    return names[: len(arguments.args)]


def input_names(names: list[str], arguments: Arguments) -> list[tuple[str, Any]]:
    """Every leaf of the arguments with its dotted name, in flattening order.

    ``names`` are those of the positional arguments.
    """
    leaves: list[tuple[str, Any]] = []
    for name, value in [*zip(names, arguments.args, strict=True), *arguments.kwargs.items()]:
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            leaves.append((".".join([name, *map(_key, path)]), leaf))
    return leaves


def output_names(result: Any) -> list[tuple[str, Any]]:
    """Every leaf of a result with its name, in flattening order.

    A single tensor is ``output``; members of a tuple or list are ``output_0``...; keys of a dict
    and fields of a named tuple or data class are their own names.
    """
    leaves: list[tuple[str, Any]] = []
    for path, leaf in pytree.tree_flatten_with_path(result)[0]:
        keys = [_key(entry) for entry in path]
        if not keys:
            keys = ["output"]
        elif keys[0].isdigit():
            keys[0] = f"output_{keys[0]}"
        leaves.append((".".join(keys), leaf))
    return leaves


def _key(entry: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)
