"""Fixtures that several folders of tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.command import Edgectl


@pytest.fixture(scope="session")
def virtual_pi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edgectl]:
    """``edgectl`` with a home of its own and a virtual Pi that is up; ``--device emulator``."""
    from support.virtual_pi import running_virtual_pi

    with running_virtual_pi(tmp_path_factory.mktemp("edgectl-home")) as command:
        yield command
