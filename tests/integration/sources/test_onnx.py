"""ONNX models: read without the onnx package, and the same numbers as ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgectl.errors import UnsupportedModelError, UsageError
from edgectl.sources import load
from edgectl.sources.loading import detect
from edgectl.sources.onnx_wire import MalformedOnnxError, read_onnx
from edgectl.sources.source_file import open_source
from support.onnx_files import WEIGHT, node, onnx_model


def test_an_onnx_model_gives_what_its_operators_say(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "m.bin")
    assert detect(open_source(path)).name == "onnx"
    model = load(path)
    assert [(spec.name, spec.shape) for spec in model.inputs] == [("x", (1, 3, 8, 8))]
    assert model.output_names == ("y",)
    x = torch.from_numpy(model.calls[0].inputs[0].copy())
    wanted = F.relu(F.conv2d(x, torch.from_numpy(WEIGHT), stride=2, padding=1)).reshape(1, -1)
    np.testing.assert_allclose(model.calls[0].outputs[0], wanted.numpy(), rtol=1e-5, atol=1e-6)
    (got,) = model.program.module()(x)
    np.testing.assert_allclose(got.detach().numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_open_sizes_are_asked_for(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "m.onnx", batch="batch")
    with pytest.raises(UsageError, match="batchx3x8x8") as caught:
        load(path)
    assert "--input-spec x=1x3x8x8xf32" in (caught.value.next_step or "")
    assert load(path, input_specs=["2x3x8x8xf32"]).inputs[0].shape == (2, 3, 8, 8)
    array = np.ones((3, 3, 8, 8), np.float32)
    np.testing.assert_array_equal(load(path, inputs=[array]).calls[0].inputs[0], array)


@pytest.mark.parametrize(
    ("inputs", "word"),
    [
        ([np.zeros((1, 3, 9, 9), np.float32)], "is 1x3x9x9xfloat32; the model takes 1x3x8x8"),
        ([np.zeros((1, 3, 8, 8))], "float64; the model takes"),
        ([np.zeros((1, 3, 8, 8), np.float32)] * 2, "More inputs"),
    ],
)
def test_inputs_that_do_not_fit_are_told(
    tmp_path: Path, inputs: list[np.ndarray], word: str
) -> None:
    with pytest.raises(UsageError, match=word):
        load(onnx_model(tmp_path / "m.onnx"), inputs=inputs)


@pytest.mark.parametrize("opset", [3, 99])
def test_other_opsets_are_refused_with_the_range(tmp_path: Path, opset: int) -> None:
    with pytest.raises(UnsupportedModelError, match="reads 9 to 23") as caught:
        load(onnx_model(tmp_path / "m.onnx", opset=opset))
    assert caught.value.exit_code == 4


def test_an_unknown_operator_is_named(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "m.onnx", extra=node("NonMaxSuppression", ["r"], ["q"]))
    with pytest.raises(UnsupportedModelError, match="NonMaxSuppression"):
        load(path)


def test_a_shape_that_comes_from_data_is_refused(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "m.onnx", extra=node("Expand", ["r", "c"], ["q"]))
    with pytest.raises(UnsupportedModelError, match="from the data of an input"):
        load(path)


def test_a_cut_file_is_told(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "m.onnx")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UsageError, match="cannot be read as ONNX") as caught:
        load(path)
    assert "sha256" in (caught.value.cause or "")


def test_every_cut_ends_in_a_typed_error(tmp_path: Path) -> None:
    data = onnx_model(tmp_path / "m.onnx").read_bytes()
    for length in range(0, len(data), 7):
        try:
            read_onnx(data[:length])
        except MalformedOnnxError:
            continue


def test_the_numbers_are_those_of_onnx_runtime(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    model = load(onnx_model(tmp_path / "m.onnx"))
    assert any("same numbers as ONNX Runtime" in note for note in model.notes)
