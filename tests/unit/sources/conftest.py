"""What tests of the model sources share."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

CASES = Path(__file__).parents[4] / "shared" / "cases" / "bug_models.py"


@pytest.fixture(scope="session")
def bug_models() -> ModuleType:
    """The models after public bug reports that lie beside the checkout."""
    if not CASES.is_file():
        pytest.skip("the collection of bug models is not beside this checkout")
    spec = importlib.util.spec_from_file_location("bug_models", CASES)
    if spec is None or spec.loader is None:
        pytest.skip(f"{CASES} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
