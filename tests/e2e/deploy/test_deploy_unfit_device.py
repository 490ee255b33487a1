"""A virtual Pi that cannot run what it is sent says so before anything is installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import small_models

pytestmark = pytest.mark.device

MODEL = f"{small_models.__file__}:digits"


def test_code_for_a_newer_core_is_refused(virtual_pi, tmp_path):
    bundle = tmp_path / "newer.edgectl"
    virtual_pi("compile", MODEL, "--target", "rpi5", "-o", bundle).expect(0)
    virtual_pi("emulator", "up", "--target", "rpi4", "-q").expect(0)
    # The running virtual Pi is a Pi 4; --target keeps it one.
    error = virtual_pi(
        "deploy", bundle, "--device", "emulator", "--target", "rpi4"
    ).expect(7).stderr  # fmt: skip
    assert "cortex-a76" in error
    assert "edgectl targets" in error


def test_a_device_without_python_says_what_to_install(virtual_pi, tmp_path):
    bundle = tmp_path / "digits.edgectl"
    virtual_pi("compile", MODEL, "-o", bundle).expect(0)
    state = json.loads((virtual_pi.home / "state/emulator/state.json").read_text())
    programs = Path(state["root"]) / "usr/bin"
    hidden = programs / "hidden-python"
    (programs / "python3.11").rename(hidden)
    try:
        error = virtual_pi("deploy", bundle, "--device", "emulator").expect(7).stderr
        doctor = virtual_pi("doctor", "emulator")
    finally:
        hidden.rename(programs / "python3.11")
    assert "Python" in error
    assert "apt" in error
    assert doctor.exit_code == 7
    assert "sudo apt" in doctor.stdout + doctor.stderr
