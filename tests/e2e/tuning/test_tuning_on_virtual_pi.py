"""Choices measured on a device, over real SSH."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import small_models

pytestmark = pytest.mark.device

MODELS = Path(small_models.__file__)


def test_choices_are_measured_on_the_device(virtual_pi, tmp_path):
    path = tmp_path / "tuned.edgectl"
    document = virtual_pi(
        "tune", f"{MODELS}:digits", "--device", "emulator", "--trust-model", "--json",
        "--iterations", "2", "--budget", "2", "--threads", "1", "-o", path,
    ).expect(0).document  # fmt: skip
    assert document["by"] == "device"
    assert document["unit"] == "ms (emulated)"
    assert document["best_cost"] <= document["default_cost"]
    measured = [t for t in document["trials"] if t["cost"] is not None]
    assert measured[0]["label"] == "default"
    deployed = virtual_pi(
        "deploy", path, "--device", "emulator", "--iterations", "1", "--json"
    ).expect(0)
    assert deployed.document["outputs_match"]
