"""INT8 from the command line to aarch64: every recipe and option, and what is said about it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from edgectl.bundle import read_bundle
from edgectl.cli.main import main
from edgectl.device_accuracy import quantization_report
from support import small_models
from support.command import Edgectl
from support.golden_on_device import check_on_device
from support.pt2e import pt2e

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
    "the specification's rounding": ["--exact-rounding"],
    "pictures": ["--calibration", "PICTURES", "--mean", "0.5", "--std", "0.5"],
    "a metric of one's own": ["--metric", "METRIC", "--max-drop", "5pp"],
}
RECIPES = ["int8", "dynamic_wi8_ai8", "weight_only_wi8"]
METRIC = """
import torch

def accuracy(run):
    torch.manual_seed(0)
    (scores,) = run(torch.randn(1, 1, 28, 28))
    return 100.0 * float(torch.isfinite(scores).all())
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("calibration") / "typical.npz"
    rng = np.random.default_rng(0)
    np.savez(path, image=rng.normal(size=(40, 1, 28, 28)).astype(np.float32))
    return path


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """What the words in capitals stand for."""
    folder = tmp_path_factory.mktemp("given")
    (folder / "pictures").mkdir()
    rng = np.random.default_rng(1)
    for number in range(12):
        pixels = rng.integers(0, 256, (40, 32), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "pictures" / f"{number}.png")
    (folder / "metric.py").write_text(METRIC)
    return {
        "PICTURES": str(folder / "pictures"),
        "METRIC": f"{folder / 'metric.py'}:accuracy",
    }


@pytest.fixture(scope="module")
def bundles(virtual_pi, data, places, tmp_path_factory):
    """Every variant, by the command in this process: torch is imported once, not eleven times."""
    folder = tmp_path_factory.mktemp("int8")
    made = {name: folder / f"{name.replace(' ', '-')}.edgectl" for name in [*OPTIONS, *RECIPES[1:]]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECTL_HOME", str(virtual_pi.home))
        for name, path in made.items():
            recipe = ["--quantize", name] if name in RECIPES else ["--quantize", "int8"]
            options = [places.get(word, word) for word in OPTIONS.get(name, [])]
            calibration = [] if name in RECIPES else ["--calibration", str(data), *options]
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


def test_the_share_of_integers_is_counted_on_the_compiled_program(bundles):
    whole = quantization_report(read_bundle(bundles["default"]))["report"]
    assert whole["float_islands"] == []
    assert whole["operations"] > whole["integer_operations"] > 0  # conversions at the border
    part = quantization_report(read_bundle(bundles["a layer in float"]))["report"]
    products = [island for island in part["float_islands"] if island["macs"]]
    assert [(island["module"], island["macs"]) for island in products] == [("head", 15680)]


def test_a_metric_of_ones_own_is_reported(bundles):
    report = quantization_report(read_bundle(bundles["a metric of one's own"]))
    assert report["report"]["metric"] == {"float_percent": 100.0, "quantized_percent": 100.0}


def test_the_bundle_says_what_the_layers_lose(virtual_pi, bundles):
    shown = virtual_pi("inspect", bundles["a layer in float"]).expect(0).stdout
    assert "float: head (aten.linear.default" in shown
    assert "Quantized layers against fp32" in shown
    document = virtual_pi("inspect", bundles["default"], "--json").expect(0).document
    layers = document["quantization"]["report"]["layers"]
    assert all(layer["sqnr_db"] > 20 for layer in layers if layer["integer"] and layer["macs"])


def test_a_program_that_came_quantized_deploys_as_integers(virtual_pi, tmp_path):
    """As torchao's PT2E flow leaves it; nothing is asked for but trust."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(800, 5),
    ).eval()  # fmt: skip
    inputs = (torch.randn(1, 3, 10, 10),)
    program = torch.export.export(pt2e(module, inputs, qat=False), inputs)
    torch.export.save(program, tmp_path / "mine.pt2")
    words = ["deploy", tmp_path / "mine.pt2", "--trust-model", "--device", "emulator"]
    shown = virtual_pi(*words, "--iterations", "1").expect(0).stdout
    assert "prequantized: 100.0% of the multiply-accumulates are integer" in shown
    assert "the model as it came" in shown
    refused = virtual_pi(
        "compile", tmp_path / "mine.pt2", "-o", tmp_path / "x.edgectl", "--trust-model",
        "--quantize", "int8", "--calibration", "absent.npz",
    ).expect(2)  # fmt: skip
    assert "is quantized already" in refused.stderr


@pytest.mark.slow
def test_half_precision_on_a_pi_5(tmp_path_factory):
    home = tmp_path_factory.mktemp("rpi5-home")
    made = home / "half.edgectl"
    command = Edgectl(home=home)
    command("emulator", "up", "-q", "--target", "rpi5").expect(0)
    try:
        command("compile", MODEL, "-o", made, "--target", "rpi5", "--quantize", "fp16").expect(0)
        result = command("deploy", made, "--device", "emulator", "--json", "--iterations", "1")
        accuracy = result.expect(0).document["accuracy"]
    finally:
        command("emulator", "down", "-q").expect(0)
    assert accuracy["end_to_end"]["sqnr_db"] > 50


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
        (["--quantize", "weight_only_wi8", "--require-int8", "1"], 4, "Only 0.0 %"),
        (["--quantize", "dynamic_wi8_ai8", "--min-sqnr", "150"], 4, "150.0 dB are required"),
        (["--quantize", "dynamic_wi8_ai8", "--quantized-io"], 2, "no int8 inputs and outputs"),
        (["--quantize", "static_wi8_ai16", "--calibration", "DATA"], 2, "48 bits"),
        (["--quantized-io"], 2, "--quantized-io needs --quantize"),
        (["--quantize", "int8", "--calibration", "DATA", "--metric", "no.py:f"], 2, "no.py"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told(virtual_pi, data, tmp_path, options, exit_code, part):
    words = [str(data) if word == "DATA" else word for word in options]
    made = tmp_path / "made.edgectl"
    error = virtual_pi("compile", MODEL, "-o", made, *words).expect(exit_code).stderr
    assert part in error
    assert not made.exists()
