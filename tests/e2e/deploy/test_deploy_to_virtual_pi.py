"""The main job, through the real command and real SSH, on an aarch64 machine."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch

import edgectl
from support import small_models

pytestmark = pytest.mark.device

MODELS = Path(small_models.__file__)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The model as a file, an input, and what eager PyTorch answers."""
    model, inputs = small_models.digits()
    folder = tmp_path_factory.mktemp("digits")
    torch.export.save(torch.export.export(model, inputs), folder / "model.pt")
    image = np.random.default_rng(1).normal(size=(1, 1, 28, 28)).astype(np.float32)
    np.save(folder / "image.npy", image)
    with torch.no_grad():
        return folder, model(torch.from_numpy(image)).numpy()


@pytest.fixture(scope="module")
def deployed(virtual_pi, digits):
    folder, _ = digits
    return virtual_pi(
        "deploy", folder / "model.pt", "--target", "rpi4", "--device", "emulator",
        "--input", folder / "image.npy", "--output", folder / "out.npz",
        "--trust-model", "--json", "--iterations", "5",
    ).expect(0)  # fmt: skip


def test_the_device_answers_what_pytorch_answers(deployed, digits):
    folder, expected = digits
    with np.load(folder / "out.npz") as outputs:
        (value,) = outputs.values()
    np.testing.assert_allclose(value, expected, atol=1e-5 * np.abs(expected).max())
    (comparison,) = deployed.document["report"]["comparisons"]
    assert comparison["passed"]
    assert comparison["max_relative_error"] < 1e-5
    assert deployed.document["outputs_match"]


def test_the_document_follows_its_schema(deployed):
    schema = json.loads(
        (Path(edgectl.__path__[0]) / "schemas" / "deployment.schema.json").read_text(
            encoding="utf-8"
        )
    )
    jsonschema.validate(deployed.document, schema)


def test_an_emulated_latency_is_labelled(deployed):
    document = deployed.document
    assert document["emulated"]
    assert document["report"]["emulated"]
    assert document["report"]["latency"]["iterations"] >= 5
    assert document["report"]["latency"]["p50_ms"] > 0


def test_a_second_deploy_sends_nothing_and_prints_a_labelled_table(virtual_pi, digits, deployed):
    folder, _ = digits
    again = ["deploy", folder / "model.pt", "--device", "emulator"]
    again += ["--input", folder / "image.npy"]
    second = virtual_pi(*again, "--json").expect(0).document  # trust is remembered
    assert second["payload_bytes_sent"] == 0
    assert second["runtime_bytes_sent"] == 0
    assert second["release"] == deployed.document["release"]
    table = virtual_pi(*again).expect(0)
    assert "0 bytes sent" in table.stdout
    assert "emulated: latency is not a Pi's" in table.stdout
    assert "\r" not in table.stderr, "nothing may move where there is no terminal"


def test_it_is_an_aarch64_machine(virtual_pi):
    facts = virtual_pi("device", "facts", "emulator", "--json").expect(0).document["facts"]
    assert facts["kernel_architecture"] == "aarch64"
    assert facts["cpu_part"] == "0xd08", "a Cortex-A72"
    assert "asimddp" not in facts["cpu_features"], "which has no dot product"


def test_a_bundle_made_before_deploys_without_the_model(virtual_pi, digits, tmp_path, deployed):
    folder, _ = digits
    bundle = tmp_path / "digits.edgectl"
    virtual_pi(
        "compile", folder / "model.pt", "--input", folder / "image.npy", "-o", bundle
    ).expect(0)
    shown = virtual_pi("inspect", bundle).expect(0).stdout
    assert "rpi4" in shown
    assert "1x1x28x28 float32" in shown
    result = virtual_pi("deploy", bundle, "--device", "emulator", "--json").expect(0).document
    assert result["outputs_match"]
    assert result["release"] == deployed.document["release"], "the same model is the same release"


def test_a_stateful_model_is_compared_over_successive_calls(virtual_pi):
    result = virtual_pi(
        "deploy", f"{MODELS}:counter", "--device", "emulator", "--trust-model", "--json"
    ).expect(0)
    calls = {c["call"] for c in result.document["report"]["comparisons"]}
    assert len(calls) >= 3
