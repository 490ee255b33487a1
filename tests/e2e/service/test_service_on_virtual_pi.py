"""A model becomes a service on the aarch64 machine, by the real command over real SSH."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from support import small_models

pytestmark = pytest.mark.device


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The model as a file, an input, and what eager PyTorch answers."""
    model, inputs = small_models.digits()
    folder = tmp_path_factory.mktemp("digits")
    torch.export.save(torch.export.export(model, inputs), folder / "digits.pt2")
    image = np.random.default_rng(1).normal(size=(1, 1, 28, 28)).astype(np.float32)
    np.save(folder / "image.npy", image)
    with torch.no_grad():
        return folder, model(torch.from_numpy(image)).numpy()


@pytest.fixture(scope="module")
def started(virtual_pi, digits):
    folder, _ = digits
    ended = virtual_pi(
        "serve", "start", folder / "digits.pt2", "--target", "rpi4", "--device", "emulator",
        "--port", "0", "--trust-model", "--json",
    ).expect(0)  # fmt: skip
    yield ended.document
    virtual_pi("serve", "stop", "--device", "emulator", "-q").expect(0)


def test_the_service_answers_what_pytorch_answers(virtual_pi, started, digits):
    folder, expected = digits
    assert started["service"]["state"] == "ready"
    assert started["emulated"]
    url = started["service"]["address"]
    virtual_pi(
        "infer", "--url", url, "--input", folder / "image.npy", "--output", folder / "out.npz", "-q"
    ).expect(0)
    with np.load(folder / "out.npz") as outputs:
        (value,) = outputs.values()
    np.testing.assert_allclose(value, expected, atol=1e-5 * np.abs(expected).max())


def test_status_url_and_logs_tell_of_it(virtual_pi, started):
    status = virtual_pi("serve", "status", "--device", "emulator", "--json").expect(0).document
    assert status["service"]["running"]
    assert [m["name"] for m in status["service"]["models"]] == ["digits"]
    url = virtual_pi("serve", "url", "--device", "emulator", "-q").expect(0).stdout.strip()
    assert url == started["service"]["address"]
    lines = virtual_pi("serve", "logs", "--device", "emulator", "--json").expect(0).document
    assert any("serving on" in line for line in lines["lines"])


def test_what_is_served_is_not_collected(virtual_pi, started):
    status = virtual_pi("status", "--device", "emulator", "--json").expect(0).document["status"]
    served = started["service"]["models"][0]["release"]
    assert next(r for r in status["releases"] if r["release"] == served)["pinned"]


def test_the_network_needs_a_token(virtual_pi, digits):
    folder, _ = digits
    bundle: Path = folder / "digits.pt2"
    ended = virtual_pi(
        "serve", "start", bundle, "--target", "rpi4", "--device", "emulator", "--host", "0.0.0.0",
        "--port", "0", "--trust-model", "--json",
    ).expect(0)  # fmt: skip
    token = ended.document["new_token"]
    port = ended.document["service"]["address"].rsplit(":", 1)[1]
    url = f"http://127.0.0.1:{port}"
    virtual_pi("infer", "--url", url, "--input", folder / "image.npy", "-q").expect(6)
    virtual_pi(
        "infer", "--url", url, "--input", folder / "image.npy", "--token", token, "-q"
    ).expect(0)
