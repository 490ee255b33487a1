"""Flat names for nested inputs and outputs: ``boxes.0``, ``logits``, ``output_1``."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from edgectl.sources.loaded import Arguments

__all__ = ["input_names", "output_names", "parameter_names", "signature_of"]


def signature_of(module: nn.Module) -> inspect.Signature | None:
    """The signature of forward, ``None`` where Python cannot tell it."""
    if isinstance(module, torch.jit.ScriptModule):
        return _scripted_signature(module)
    try:
        return inspect.signature(module.forward)
    except (TypeError, ValueError):
        return None


def _scripted_signature(module: torch.jit.ScriptModule) -> inspect.Signature:
    schema: Any = getattr(module.forward, "schema")  # noqa: B009  # set by torch at run time
    parameters = [
        inspect.Parameter(
            argument.name,
            inspect.Parameter.KEYWORD_ONLY
            if argument.kwarg_only
            else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=argument.default_value
            if argument.has_default_value()
            else inspect.Parameter.empty,
        )
        for argument in schema.arguments[1:]
    ]
    return inspect.Signature(parameters)


def parameter_names(module: nn.Module, arguments: Arguments) -> list[str]:
    """One name per positional argument, from forward's parameters (``rest.0`` for ``*rest``)."""
    signature = signature_of(module)
    parameters = list(signature.parameters.values()) if signature else []
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
