"""A serialized program passes only if no text in it can lead torch to run code."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgectl.errors import UnsupportedModelError
from edgectl.records import ExportedModel
from edgectl.sources.assembling import assemble
from edgectl.sources.handback import read_model, write_model
from edgectl.sources.input_specs import parse_dynamic, parse_input_specs
from edgectl.sources.loaded import Arguments, Loaded
from edgectl.sources.options import LoadOptions
from edgectl.sources.safe_program import checked_program
from edgectl.sources.tensor_file import MalformedTensorFileError, read_tensors, write_tensors


def model_of(module: nn.Module, *args: torch.Tensor, dynamic: bool = False) -> ExportedModel:
    options = LoadOptions(
        input_specs=parse_input_specs(["batchx3xf32"]) if dynamic else (),
        dynamic=(parse_dynamic("batch=1..8"),) if dynamic else (),
    )
    example = None if dynamic else Arguments(args=args)
    loaded = Loaded(name="m", module=module, example=example)
    return assemble(loaded, options, kind="pickled-module", digest="0")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("model")
    write_model(model_of(nn.Linear(3, 4), dynamic=True), folder)
    return json.loads((folder / "program.json").read_text())


def test_a_model_comes_back_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = model_of(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), torch.randn(2, 3))
    write_model(model, tmp_path)
    back = read_model(tmp_path, digest="0")
    assert (back.name, back.inputs, back.output_names) == (
        model.name,
        model.inputs,
        model.output_names,
    )
    assert str(back.program.graph) == str(model.program.graph)
    for name, tensor in model.program.state_dict.items():
        assert torch.equal(back.program.state_dict[name], tensor)
    np.testing.assert_array_equal(back.calls[0].outputs[0], model.calls[0].outputs[0])


def test_shared_weights_are_stored_once(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(100, 100, bias=False)
            self.b = nn.Linear(100, 100, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x))

    write_model(model_of(Tied(), torch.ones(1, 100)), tmp_path)
    assert (tmp_path / "tensors.bin").stat().st_size < 50_000


def test_a_dynamic_program_passes(document: dict[str, Any]) -> None:
    assert "Symbol" in json.dumps(document)
    checked_program(copy.deepcopy(document))


def test_guards_and_function_names_are_dropped(document: dict[str, Any]) -> None:
    hostile = copy.deepcopy(document)
    hostile["guards_code"] = ["__import__('os').system('true')"]
    node = hostile["graph_module"]["graph"]["nodes"][0]
    node["metadata"]["source_fn_stack"] = "a,torch.os.system"
    clean = checked_program(hostile)
    assert clean["guards_code"] == []
    assert "source_fn_stack" not in clean["graph_module"]["graph"]["nodes"][0]["metadata"]


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system",
        "torch.ops.aten.__class__.default",
        "torch.ops.aten.linear.__init__",
        "torch.ops.load_library",
        "torch.ops.aten.from_file.default",
        "_operator.attrgetter",
        "_operator.methodcaller",
        "math.__loader__",
        "#extension:x",
        "torch.hub.load",
    ],
)
def test_operators_that_are_none_are_refused(document: dict[str, Any], target: str) -> None:
    hostile = copy.deepcopy(document)
    hostile["graph_module"]["graph"]["nodes"][0]["target"] = target
    with pytest.raises(MalformedTensorFileError, match="operator"):
        checked_program(hostile)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__",
        "s0.__class__",
        "exec",
        "lambda: 1",
        "9**9**9**9",
        "s0 if open else 1",
        "Symbol('s0', __import__=1)",
        "a" * 70000,
    ],
)
def test_size_expressions_that_are_python_are_refused(text: str) -> None:
    program = {
        "graph_module": {"module_call_graph": [], "x": {"expr_str": text}},
        "range_constraints": {},
    }
    with pytest.raises(MalformedTensorFileError, match="size expression"):
        checked_program(program)


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "collections.defaultdict", "context": "{}", "children_spec": []},
        {"type": "collections.namedtuple", "context": '"os.system"', "children_spec": []},
        {
            "type": "builtins.dict",
            "context": '[{"__enum__": true, "fqn": "os:system"}]',
            "children_spec": [],
        },
    ],
)
def test_pytrees_that_import_are_refused(document: dict[str, Any], spec: dict[str, Any]) -> None:
    hostile = copy.deepcopy(document)
    signature = hostile["graph_module"]["module_call_graph"][0]["signature"]
    signature["out_spec"] = json.dumps([1, spec])
    with pytest.raises(MalformedTensorFileError, match="pytree"):
        checked_program(hostile)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 100,
        (50).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        b"".join(
            [
                (58).to_bytes(8, "little"),
                b'{"a": {"dtype": "float32", "shape": [9999999], "offset":0}}'[:58],
            ]
        ),
    ],
)
def test_a_damaged_tensor_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(MalformedTensorFileError):
        read_tensors(tmp_path / "t")


def test_tensors_larger_than_their_file_are_refused(tmp_path: Path) -> None:
    write_tensors(tmp_path / "t", {"a": np.zeros(4, np.float32)})
    data = (tmp_path / "t").read_bytes().replace(b"[4]", b"[5]")
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(MalformedTensorFileError, match="outside of the file"):
        read_tensors(tmp_path / "t")


def test_tensors_keep_dtype_shape_and_scalars(tmp_path: Path) -> None:
    arrays = {
        "f": np.arange(6, dtype=np.float16).reshape(2, 3),
        "s": np.array(7, dtype=np.int64),
        "b": np.array([True, False]),
        "e": np.zeros((0, 3), np.float32),
    }
    write_tensors(tmp_path / "t", arrays)
    back = read_tensors(tmp_path / "t")
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        np.testing.assert_array_equal(back[name], array)


def test_a_program_that_is_not_one_is_an_unsupported_model(tmp_path: Path) -> None:
    write_model(model_of(nn.ReLU(), torch.ones(2)), tmp_path)
    program = json.loads((tmp_path / "program.json").read_text())
    program["graph_module"]["graph"]["nodes"][0]["target"] = "torch.os.system"
    (tmp_path / "program.json").write_text(json.dumps(program))
    with pytest.raises(UnsupportedModelError, match="not a plain program") as caught:
        read_model(tmp_path, digest="0")
    assert caught.value.exit_code == 4
