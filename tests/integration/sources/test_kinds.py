"""Every kind of model file, made here, recognised by content and loaded to what eager says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgectl.errors import TrustRequiredError, UnsupportedModelError, UsageError
from edgectl.records import ExportedModel
from edgectl.sources import TrustPolicy, load
from edgectl.sources.loading import detect
from edgectl.sources.source_file import open_source
from support.model_files import write_kind

ARCHITECTURE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x))).mean((2, 3))

def build():
    return Net()

def with_inputs():
    return Net(), (torch.ones(1, 3, 8, 8),)

def wider():
    return Net(5)

def broken():
    raise RuntimeError("no weights today")

def number():
    return 3
"""
SPEC = "1x3x8x8xf32"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of a small network, importable under its own name."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "small_net_for_tests.py").write_text(ARCHITECTURE)
    return folder


@pytest.fixture(scope="module")
def net(folder: Path) -> Any:
    sys.path.insert(0, str(folder))
    import small_net_for_tests

    torch.manual_seed(3)
    return small_net_for_tests.Net().eval()


@pytest.fixture
def trusted(tmp_path: Path) -> TrustPolicy:
    return TrustPolicy(trusted=True, state_dir=tmp_path / "state")


@pytest.fixture
def untrusted(tmp_path: Path) -> TrustPolicy:
    return TrustPolicy(state_dir=tmp_path / "state")


def check(model: ExportedModel, net: nn.Module) -> None:
    """Recorded outputs and the program's outputs are both what the network says."""
    (array,) = model.calls[0].inputs
    with torch.no_grad():
        wanted = net(torch.from_numpy(array.copy())).numpy()
    np.testing.assert_allclose(model.calls[0].outputs[0], wanted, rtol=1e-4, atol=1e-6)
    got = model.program.module()(torch.from_numpy(array.copy())).detach().numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "recognised"),
    [
        ("exported-program", "exported-program"),
        ("torchscript", "torchscript"),
        ("pickled-module", "pickled-module"),
        ("legacy-module", "pickled-module"),
        ("state-dict", "state-dict"),
        ("legacy-state-dict", "state-dict"),
        ("checkpoint", "checkpoint"),
        ("safetensors", "safetensors"),
    ],
)
def test_kinds_are_told_by_content_not_by_extension(
    tmp_path: Path, net: nn.Module, kind: str, recognised: str
) -> None:
    path = tmp_path / "model.bin"
    write_kind(kind, net, path)
    assert detect(open_source(path)).name == recognised


@pytest.mark.parametrize(
    "kind", ["exported-program", "torchscript", "pickled-module", "checkpoint"]
)
def test_files_that_can_run_code_want_trust_and_then_load(
    tmp_path: Path,
    folder: Path,
    net: nn.Module,
    trusted: TrustPolicy,
    untrusted: TrustPolicy,
    kind: str,
) -> None:
    path = tmp_path / "model.pt"
    write_kind(kind, net, path)
    more: dict[str, Any] = {} if kind == "exported-program" else {"input_specs": [SPEC]}
    if kind == "checkpoint":
        more["architecture"] = f"{folder}/small_net_for_tests.py:build"
    with pytest.raises(TrustRequiredError, match="can run any code") as caught:
        load(path, trust=untrusted, **more)
    assert caught.value.exit_code == 3
    model = load(path, trust=trusted, **more)
    assert model.source_kind == kind
    assert model.name == "model"
    assert len(model.digest) == 64
    check(model, net)


@pytest.mark.parametrize("kind", ["state-dict", "legacy-state-dict", "safetensors"])
def test_weights_load_without_trust(
    tmp_path: Path, folder: Path, net: nn.Module, untrusted: TrustPolicy, kind: str
) -> None:
    path = tmp_path / "weights.pt"
    write_kind(kind, net, path)
    architecture = f"{folder}/small_net_for_tests.py:with_inputs"
    check(load(path, trust=untrusted, architecture=architecture), net)
    with pytest.raises(UsageError, match="holds only weights") as caught:
        load(path, trust=untrusted)
    assert "--arch" in (caught.value.next_step or "")
    with pytest.raises(UsageError, match=r"do not fit --arch .*conv.weight is \(4, 3, 3, 3\)"):
        load(path, trust=untrusted, architecture=f"{folder}/small_net_for_tests.py:wider")


def test_a_factory_needs_no_trust(
    folder: Path, untrusted: TrustPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    by_name = load("small_net_for_tests:with_inputs", trust=untrusted)
    by_file = load(f"{folder}/small_net_for_tests.py:with_inputs", trust=untrusted)
    assert by_name.source_kind == "factory"
    assert by_name.name == "with_inputs"
    assert by_name.inputs == by_file.inputs


@pytest.mark.parametrize(
    ("function", "word"),
    [
        ("nothing", "has no function 'nothing'"),
        ("broken", "no weights today"),
        ("number", "returned a int"),
        ("build", "Nothing says what the model's inputs look like"),
    ],
)
def test_each_bad_factory_is_told(folder: Path, function: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        load(f"{folder}/small_net_for_tests.py:{function}")


def test_a_module_that_is_not_installed_is_told() -> None:
    with pytest.raises(UsageError, match="cannot be imported"):
        load("no_such_package.models:build")


def test_a_checkpoint_says_where_its_weights_are(
    tmp_path: Path, folder: Path, net: nn.Module
) -> None:
    architecture = f"{folder}/small_net_for_tests.py:with_inputs"
    path = tmp_path / "c.pt"
    torch.save({"state_dict": net.state_dict(), "epoch": 3}, path)
    model = load(path, architecture=architecture)
    check(model, net)
    assert any("'state_dict'" in note for note in model.notes)
    torch.save({"student": net.state_dict(), "teacher": net.state_dict()}, path)
    with pytest.raises(UsageError, match="student, teacher") as caught:
        load(path, architecture=architecture)
    assert "--state-key" in (caught.value.next_step or "")
    check(load(path, architecture=architecture, state_key="teacher"), net)


def test_wrapper_prefixes_are_taken_off_and_said(
    tmp_path: Path, folder: Path, net: nn.Module
) -> None:
    path = tmp_path / "c.pt"
    torch.save({f"module._orig_mod.{k}": v for k, v in net.state_dict().items()}, path)
    model = load(path, architecture=f"{folder}/small_net_for_tests.py:with_inputs")
    check(model, net)
    assert any("'module.'" in note for note in model.notes)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_upcast_and_said(
    tmp_path: Path, folder: Path, net: nn.Module, dtype: torch.dtype
) -> None:
    path = tmp_path / "half.pt"
    torch.save({k: v.to(dtype) for k, v in net.state_dict().items()}, path)
    model = load(path, architecture=f"{folder}/small_net_for_tests.py:with_inputs")
    assert model.calls[0].outputs[0].dtype == np.float32
    assert any(str(dtype).removeprefix("torch.") in note for note in model.notes)


def test_weights_saved_on_a_gpu_load_here(
    tmp_path: Path, folder: Path, net: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gpu.pt"
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        torch.save(net.state_dict(), path)
    check(load(path, architecture=f"{folder}/small_net_for_tests.py:with_inputs"), net)


def test_scripted_control_flow_that_cannot_be_converted_is_told(
    tmp_path: Path, trusted: TrustPolicy
) -> None:
    class Looping(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts: list[torch.Tensor] = []
            while bool(x.sum() > 0):
                x = x - 1
                parts.append(x)
            return torch.stack(parts)

    path = tmp_path / "loop.pt"
    torch.jit.save(torch.jit.script(Looping()), path)
    with pytest.raises(UnsupportedModelError) as caught:
        load(path, trust=trusted, input_specs=["3xf32"])
    assert caught.value.exit_code == 4
    assert "Traceback" not in caught.value.message


def test_an_unknown_architecture_is_told(tmp_path: Path, net: nn.Module) -> None:
    path = tmp_path / "w.pt"
    torch.save(net.state_dict(), path)
    for name, word in (
        ("resnet18", "names no architecture"),
        ("transformers:/no/such/folder", "transformers"),
        ("timm:no_such_model", "timm"),
    ):
        with pytest.raises(UsageError, match=word):
            load(path, architecture=name)
