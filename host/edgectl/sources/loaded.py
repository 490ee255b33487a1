"""What a source kind hands to the exporter: an eager module, and what is known of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

__all__ = ["Arguments", "Loaded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Arguments of one call of ``forward``: pytrees of tensors and Python values."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """``module`` runs in eager mode and is the truth. ``program`` is there if it was exported
    already; then ``module`` is made of it. ``example`` is there if the source came with one.
    ``exporter`` stands in for torch.export where that cannot take the module (its arguments:
    module, arguments, dynamic shapes). ``names`` are those of the positional arguments, where
    forward's own parameters do not tell.
    """

    name: str
    module: nn.Module
    program: ExportedProgram | None = None
    example: Arguments | None = None
    dynamic_shapes: Any = None
    exporter: Callable[[nn.Module, Arguments, Any], ExportedProgram] | None = None
    names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
