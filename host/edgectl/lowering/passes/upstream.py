"""MLIR's own passes that ours rely on."""

from __future__ import annotations

from typing import Any

from torch_mlir.passmanager import PassManager

__all__ = ["clean_up"]


def clean_up(module: Any) -> None:
    """Canonical forms, equal operations merged, dead ones removed."""
    with module.context:
        PassManager.parse("builtin.module(func.func(canonicalize,cse))").run(module.operation)
