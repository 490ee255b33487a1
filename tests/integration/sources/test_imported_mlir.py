"""TFLite and TOSA files: recognised, and loaded where the packages that judge them are there."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgectl.errors import UnsupportedModelError, UsageError
from edgectl.records import Dialect
from edgectl.sources import load
from edgectl.sources.imported import read_mlir
from edgectl.sources.loading import detect
from edgectl.sources.source_file import open_source

TOSA = """
func.func @doubled(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = tosa.add %a, %a : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}
"""
has_tosa_tools = bool(importlib.util.find_spec("tosa_reference_model") and shutil.which("tosa-opt"))
has_tflite = bool(importlib.util.find_spec("tosa_converter_for_tflite"))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x1c\0\0\0TFL3" + b"\0" * 40, "tflite"),
        (b"\x08\0\0\0TOSA" + b"\0" * 40, "tosa-flatbuffer"),
        (b"ML\xefR\x0dMLIR23" + b"\0" * 40, "tosa-mlir"),
        (TOSA.encode(), "tosa-mlir"),
    ],
)
def test_they_are_told_by_content(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    assert detect(open_source(path)).name == kind


def test_text_becomes_bytecode_with_its_signature(tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(TOSA)
    signature = read_mlir(open_source(path), path.read_bytes())
    assert signature.module.dialect is Dialect.TOSA
    assert signature.module.function == "doubled"
    assert signature.module.bytecode.startswith(b"ML\xefR")
    assert [(s.name, s.shape, s.dtype) for s in signature.inputs] == [("input", (2, 3), "float32")]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("module {}", "0 public functions"),
        (TOSA + TOSA.replace("@doubled", "@again"), "2 public functions"),
        (TOSA.replace("2x3", "?x3"), r"is tensor<\?x3xf32>"),
        ("func.func @broken(", "no MLIR"),
    ],
)
def test_what_is_not_one_fixed_function_is_told(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(text)
    with pytest.raises(UnsupportedModelError, match=word) as caught:
        read_mlir(open_source(path), path.read_bytes())
    assert caught.value.exit_code == 4


@pytest.mark.skipif(has_tflite, reason="the converter is installed")
def test_a_missing_converter_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(b"\x1c\0\0\0TFL3" + b"\0" * 40)
    with pytest.raises(UsageError, match="tosa-converter-for-tflite is not installed") as caught:
        load(path)
    assert caught.value.exit_code == 2


@pytest.mark.skipif(has_tosa_tools, reason="tosa-tools is installed")
def test_a_missing_reference_model_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(TOSA)
    with pytest.raises(UsageError, match="tosa-tools is not installed"):
        load(path)


@pytest.mark.skipif(not has_tosa_tools, reason="needs tosa-tools")
def test_tosa_text_is_computed_by_the_reference_model(tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(TOSA)
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    model = load(path, inputs=[given])
    assert model.imported is not None
    np.testing.assert_array_equal(model.calls[0].outputs[0], given * 2)
