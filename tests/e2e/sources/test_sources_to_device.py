"""Every kind of model file through the command line to aarch64, against its own runtime."""

from __future__ import annotations

import io
import sys
import zipfile

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgectl.bundle import read_bundle
from edgectl.cli.main import main
from support.golden_on_device import check_on_device
from support.model_files import write_kind
from support.onnx_files import WEIGHT, onnx_model

pytestmark = pytest.mark.device

ARCHITECTURE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
        )
        self.head = nn.Linear(256, 5)

    def forward(self, picture):
        return self.head(self.features(picture).flatten(1))

def build():
    return Net()

def with_inputs():
    torch.manual_seed(7)
    return Net().eval(), (torch.ones(1, 3, 8, 8),)
"""
WEIGHTS_ONLY = ["state-dict", "legacy-state-dict", "safetensors"]
RUN_CODE = ["exported-program", "torchscript", "pickled-module", "legacy-module", "checkpoint"]
KINDS = [*WEIGHTS_ONLY, *RUN_CODE, "onnx", "factory"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("kinds")
    (made / "net_of_the_sources_table.py").write_text(ARCHITECTURE)
    rng = np.random.default_rng(5)
    np.save(made / "picture.npy", rng.normal(size=(1, 3, 8, 8)).astype(np.float32))
    return made


@pytest.fixture(scope="module")
def net(folder):
    sys.path.insert(0, str(folder))
    import net_of_the_sources_table

    torch.manual_seed(3)
    yield net_of_the_sources_table.Net().eval()
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def bundles(virtual_pi, folder, net):
    """Each file has a name that says nothing about its kind."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGECTL_HOME", str(virtual_pi.home))
        for kind in KINDS:
            source, path = folder / f"{kind}.bin", folder / f"{kind}.edgectl"
            options = ["--input", str(folder / "picture.npy")]
            if kind == "onnx":
                onnx_model(source)
            elif kind == "factory":
                source = f"{folder}/net_of_the_sources_table.py:with_inputs"
            else:
                write_kind(kind, net, source)
            if kind in (*WEIGHTS_ONLY, "checkpoint"):
                options += ["--arch", "net_of_the_sources_table:build"]
            if kind in RUN_CODE:
                options += ["--trust-model"]
            if kind == "checkpoint":
                options += ["--state-key", "state_dict"]
            with pytest.raises(SystemExit) as end:
                main(["compile", str(source), "-q", "-o", str(path), *options])
            assert end.value.code == 0, kind
            made[kind] = path
    return made


@pytest.fixture(scope="module")
def checked(virtual_pi, bundles):
    return check_on_device(virtual_pi.home, bundles)


def golden_output(bundle, folder, kind):
    """What the bundle says the model answers, and the input it says so for."""
    with zipfile.ZipFile(bundle) as archive:
        given = np.load(io.BytesIO(archive.read("golden/0/input_0.npy")))
        answer = np.load(io.BytesIO(archive.read("golden/0/output_0.npy")))
    np.testing.assert_array_equal(given, np.load(folder / "picture.npy"))
    return torch.from_numpy(given), answer


@pytest.mark.parametrize("kind", KINDS)
def test_the_device_answers_what_the_files_own_runtime_answers(checked, bundles, folder, net, kind):
    x, answer = golden_output(bundles[kind], folder, kind)
    with torch.no_grad():
        if kind == "onnx":
            wanted = F.relu(F.conv2d(x, torch.from_numpy(WEIGHT), stride=2, padding=1)).flatten(1)
        elif kind == "factory":
            import net_of_the_sources_table

            wanted = net_of_the_sources_table.with_inputs()[0](x)
        else:
            wanted = net(x)
    np.testing.assert_allclose(answer, wanted.numpy(), rtol=1e-4, atol=1e-5)
    assert checked[kind].passed, checked[kind]
    assert checked[kind].worst < 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_the_bundle_says_what_it_was_made_from(bundles, kind):
    said = read_bundle(bundles[kind]).manifest.provenance["source"]["kind"]
    families = {"legacy-state-dict": "state-dict", "legacy-module": "pickled-module"}
    assert said == families.get(kind, kind)


def test_names_of_inputs_are_kept(bundles):
    names = {
        kind: [spec.name for spec in read_bundle(path).manifest.entry_points[0].inputs]
        for kind, path in bundles.items()
    }
    assert names.pop("onnx") == ["x"]
    assert all(found == ["picture"] for found in names.values()), names
