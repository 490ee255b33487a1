"""INT8 from the command line to aarch64: every recipe and option, and what is said about it."""

from __future__ import annotations

import numpy as np
import pytest

from edgectl.bundle import read_bundle
from edgectl.cli.main import main
from edgectl.device_accuracy import quantization_report
from support import small_models
from support.golden_on_device import check_on_device

pytestmark = pytest.mark.device

MODEL = f"{small_models.__file__}:digits"
OPTIONS = {
    "default": [],
    "best": ["--quality", "best"],
    "minmax": ["--observer", "minmax"],
    "mse": ["--observer", "mse"],
    "int8 at the boundary": ["--quantized-io"],
    "a layer in float": ["--keep-float", "head"],
    "a budget of points": ["--max-drop", "5pp"],
    "a budget of decibels": ["--min-sqnr", "30"],
    "a required share": ["--require-int8", "0.99"],
}
RECIPES = ["int8", "dynamic_wi8_ai8", "weight_only_wi8"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("calibration") / "typical.npz"
    rng = np.random.default_rng(0)
    np.savez(path, image=rng.normal(size=(40, 1, 28, 28)).astype(np.float32))
    return path


@pytest.fixture(scope="module")
def bundles(virtual_pi, data, tmp_path_factory):
    """Every variant, by the command in this process: torch is imported once, not eleven times."""
    folder = tmp_path_factory.mktemp("int8")
    made = {name: folder / f"{name.replace(' ', '-')}.edgectl" for name in [*OPTIONS, *RECIPES[1:]]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECTL_HOME", str(virtual_pi.home))
        for name, path in made.items():
            recipe = ["--quantize", name] if name in RECIPES else ["--quantize", "int8"]
            calibration = [] if name in RECIPES else ["--calibration", str(data), *OPTIONS[name]]
            with pytest.raises(SystemExit) as end:
                main(["compile", MODEL, "-q", "-o", str(path), *recipe, *calibration])
            assert end.value.code == 0, name
    return made


@pytest.fixture(scope="module")
def checked(virtual_pi, bundles):
    return check_on_device(virtual_pi.home, {n.replace(" ", "-"): b for n, b in bundles.items()})


@pytest.mark.parametrize("name", [*OPTIONS, *RECIPES[1:]])
def test_the_device_computes_the_quantized_program(checked, bundles, name):
    result = checked[name.replace(" ", "-")]
    assert result.passed, result
    report = quantization_report(read_bundle(bundles[name]))
    assert report is not None
    share = report["report"]["integer_macs"] / report["report"]["macs"]
    if name in ("a layer in float", "weight_only_wi8", "dynamic_wi8_ai8"):
        assert share < 1  # the dynamic recipe is for linear layers
    else:
        assert share == 1
    assert report["report"]["against_float"]["sqnr_db"] > 25


def test_integers_at_the_boundary(bundles):
    entry = read_bundle(bundles["int8 at the boundary"]).manifest.entry_points[0]
    assert entry.inputs[0].dtype == "int8"
    assert entry.outputs[0].spec.dtype == "int8"


def test_a_deployment_says_what_is_integer_and_whose_the_loss_is(virtual_pi, data):
    words = ["deploy", MODEL, "--device", "emulator", "--quantize", "int8", "--calibration", data]
    shown = virtual_pi(*words).expect(0).stdout
    assert "Compared with the quantized model in PyTorch" in shown
    assert "100.0% of the multiply-accumulates are integer" in shown
    assert "The loss is quantization" in shown
    accuracy = virtual_pi(*words, "--json").expect(0).document["accuracy"]
    assert accuracy["end_to_end"]["sqnr_db"] > 25
    assert accuracy["code_generation"]["max_error"] == 0


@pytest.mark.parametrize(
    ("options", "exit_code", "part"),
    [
        (["--quantize", "int8"], 2, "needs calibration data"),
        (["--quantize", "int7", "--calibration", "DATA"], 2, "int7"),
        (["--calibration", "DATA"], 2, "--calibration needs --quantize"),
        (["--quantize", "int8", "--calibration", "absent.npz"], 2, "absent.npz"),
        (
            ["--quantize", "int8", "--calibration", "DATA", "--keep-float", "head",
             "--require-int8", "0.99"], 4, "head",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told(virtual_pi, data, tmp_path, options, exit_code, part):
    words = [str(data) if word == "DATA" else word for word in options]
    made = tmp_path / "made.edgectl"
    error = virtual_pi("compile", MODEL, "-o", made, *words).expect(exit_code).stderr
    assert part in error
    assert not made.exists()
