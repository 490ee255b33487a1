"""ONNX models: read without the onnx package, and the same numbers as ONNX Runtime."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from edgectl.errors import UnsupportedModelError, UsageError
from edgectl.sources import load
from edgectl.sources.loading import detect
from edgectl.sources.onnx_wire import MalformedOnnxError, read_onnx
from edgectl.sources.source_file import open_source

WEIGHT = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: Any) -> bytes:
    """One protobuf field: bytes, text, int or float."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def attribute(name: str, value: Any) -> bytes:
    body = field(1, name)
    if isinstance(value, list):
        body += b"".join(field(8, item) for item in value) + field(20, 7)
    elif isinstance(value, float):
        body += field(2, value) + field(20, 1)
    else:
        body += field(3, value) + field(20, 2)
    return field(5, body)


def node(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> bytes:
    body = b"".join(field(1, name) for name in inputs)
    body += b"".join(field(2, name) for name in outputs)
    body += field(3, f"/{outputs[0]}/{kind}") + field(4, kind)
    return field(1, body + b"".join(attribute(k, v) for k, v in attributes.items()))


def weight(name: str, array: np.ndarray) -> bytes:
    dims = b"".join(field(1, size) for size in array.shape)
    kind = {"float32": 1, "int64": 7}[array.dtype.name]
    return field(5, dims + field(2, kind) + field(8, name) + field(9, array.tobytes()))


def port(number: int, name: str, shape: list[int | str]) -> bytes:
    dims = b"".join(
        field(1, field(1, size) if isinstance(size, int) else field(2, size)) for size in shape
    )
    return field(number, field(1, name) + field(2, field(1, field(1, 1) + field(2, dims))))


def onnx_model(path: Path, *, opset: int = 17, batch: int | str = 1, extra: bytes = b"") -> Path:
    """conv -> relu -> a reshape whose shape is computed from the input's shape."""
    graph = b"".join(
        [
            node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1], group=1),
            node("Relu", ["c"], ["r"]),
            node("Shape", ["r"], ["s"]),
            node("Gather", ["s", "zero"], ["n"], axis=0),
            node("Unsqueeze", ["n", "axes"], ["n1"]),
            node("Concat", ["n1", "rest"], ["to"], axis=0),
            node("Reshape", ["r", "to"], ["y"]),
            extra,
            weight("w", WEIGHT),
            weight("zero", np.array(0, dtype=np.int64)),
            weight("axes", np.array([0], dtype=np.int64)),
            weight("rest", np.array([-1], dtype=np.int64)),
            port(11, "x", [batch, 3, 8, 8]),
            port(12, "y", [batch, 64]),
        ]
    )
    path.write_bytes(field(1, 8) + field(2, "test") + field(7, graph) + field(8, field(2, opset)))
    return path


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
