"""Keeps torch's warnings about its own internals away from users."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet"]


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, deprecations that torch.export and graph copying raise about torch are not shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
