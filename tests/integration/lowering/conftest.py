"""A refusal must name what it refuses, and is only allowed where it is known."""

from __future__ import annotations

import pytest

# Operators that have no way down in this torch-mlir. Shrink it, never grow it.
KNOWN_REFUSALS: frozenset[str] = frozenset()


@pytest.fixture
def refused():
    def check(name: str, message: str) -> None:
        assert name in KNOWN_REFUSALS, f"{name} is refused: {message}"

    return check
