"""The demo's model, for the tests of this folder."""

from __future__ import annotations

import pytest

from support.efficientnet import write_efficientnet


@pytest.fixture(scope="session")
def efficientnet(tmp_path_factory):
    """A folder with EfficientNet-Lite0 and a photograph."""
    return write_efficientnet(tmp_path_factory.mktemp("efficientnet"))
