"""Operators that exist only after the library that brings them was imported."""

from __future__ import annotations

import importlib

__all__ = ["register_operators"]

# Part of torch itself. Whatever else a file may name is not imported on its word.
_LIBRARIES = {b"quantized_decomposed": "torch.ao.quantization.fx._decomposed"}


def register_operators(*programs: bytes) -> None:
    """Makes the operators known that these serialized programs use (PT2E-quantized ones do)."""
    for namespace, module in _LIBRARIES.items():
        if any(namespace in program for program in programs):
            importlib.import_module(module)
