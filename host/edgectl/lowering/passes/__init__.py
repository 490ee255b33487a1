"""Passes on the TOSA module, in the order in which they run."""

from __future__ import annotations

from typing import Any

__all__ = ["run_passes"]


def run_passes(module: Any) -> None:
    """Runs every pass, in place."""
    del module
