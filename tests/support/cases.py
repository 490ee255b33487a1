"""The acceptance models beside this project: ``../shared/cases/bug_models.py``."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).resolve().parents[3] / "shared/cases/bug_models.py"


@functools.cache
def bug_models() -> ModuleType:
    """The module; tests that need it are skipped where it is not beside the checkout."""
    if not FILE.exists():
        pytest.skip(
            "the acceptance cases are not beside this checkout (shared/cases)",
            allow_module_level=True,
        )
    spec = importlib.util.spec_from_file_location("bug_models", FILE)
    if spec is None or spec.loader is None:
        raise ImportError(FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
