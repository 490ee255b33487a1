"""``edgectl tune`` by estimate, through the real command and compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgectl.bundle import read_bundle
from support import small_models
from support.command import Edgectl

MODELS = Path(small_models.__file__)


@pytest.mark.slow
@pytest.mark.device
def test_a_search_goes_on_and_writes_the_best_bundle(virtual_pi, tmp_path):
    path = tmp_path / "tuned.edgectl"
    arguments = [
        "tune", f"{MODELS}:digits", "--target", "rpi4", "--trust-model", "--json",
        "--journal", tmp_path / "journal", "-o", path,
    ]  # fmt: skip
    first = virtual_pi(*arguments, "--budget", "2").expect(0).document
    assert first["unit"] == "modelled ms"
    assert first["best_cost"] <= first["default_cost"]
    costs = {t["label"]: t["cost"] for t in first["trials"]}
    assert costs["default"] > 0
    assert costs["no kernels"] > 0
    assert first["best_cost"] == pytest.approx(min(c for c in costs.values() if c), rel=0.02)
    assert read_bundle(path).manifest.target == "rpi4"
    second = virtual_pi(*arguments, "--budget", "1").expect(0).document
    known = {t["label"]: t["cost"] for t in second["trials"] if t["remembered"]}
    assert {"default", "no kernels"} <= known.keys()
    assert known["default"] == costs["default"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--threads", "2"], "an estimate is of one core"),
        (["--threads", "two", "--device", "emulator"], "not a list of numbers"),
        (["--target", "rpi9"], "no target"),
        (["--precisions", "int8"], "typical inputs"),
    ],
)
def test_what_cannot_be_asked_for(tmp_path, words, message):
    ended = Edgectl(home=tmp_path)(
        "tune", f"{MODELS}:counter", "--trust-model", "-o", tmp_path / "x.edgectl", *words
    ).expect(2)
    assert message in ended.stderr


def test_a_bundle_cannot_be_tuned(tmp_path):
    command = Edgectl(home=tmp_path)
    path = tmp_path / "counter.edgectl"
    command("compile", f"{MODELS}:counter", "--trust-model", "-o", path).expect(0)
    ended = command("tune", path).expect(2)
    assert "its choices were made" in ended.stderr
    assert "next:" in ended.stderr
