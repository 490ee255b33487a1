"""What tests of the model sources share."""

from __future__ import annotations

from types import ModuleType

import pytest

from support import cases


@pytest.fixture(scope="session")
def bug_models() -> ModuleType:
    """The models after public bug reports that lie beside the checkout."""
    if not cases.FILE.is_file():
        pytest.skip("the collection of bug models is not beside this checkout")
    return cases.bug_models()
