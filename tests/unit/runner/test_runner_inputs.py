"""Every input is checked; one error names all that is wrong."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from edgectl_runner.contract import TensorSpec
from edgectl_runner.failures import RunnerError
from edgectl_runner.tensors import check_inputs, load_npy

IMAGE = TensorSpec(name="image", shape=(1, 3, 8, 8), dtype="float32")
LENGTH = TensorSpec(name="length", shape=(), dtype="int64")


def test_arrays_that_fit_are_taken_as_they_are() -> None:
    array = np.zeros((1, 3, 8, 8), np.float32)
    assert check_inputs([IMAGE], [array])[0] is array


def test_a_transposed_array_is_made_contiguous_with_the_same_numbers() -> None:
    array = np.arange(192, dtype=np.float32).reshape(1, 8, 8, 3).transpose(0, 3, 1, 2)
    taken = check_inputs([IMAGE], [array])[0]
    assert taken.flags.c_contiguous
    assert np.array_equal(taken, array)


def test_float64_is_refused_not_converted() -> None:
    with pytest.raises(RunnerError) as caught:
        check_inputs([IMAGE], [np.zeros((1, 3, 8, 8))])
    assert caught.value.code == 2
    assert caught.value.message == ("input 'image': expected 1x3x8x8xfloat32, got 1x3x8x8xfloat64")


def test_every_wrong_input_is_named_in_one_error() -> None:
    with pytest.raises(RunnerError) as caught:
        check_inputs([IMAGE, LENGTH], [np.zeros((3, 8, 8), np.float32), np.zeros(2, np.int64)])
    assert "'image'" in caught.value.message
    assert "expected scalar int64, got 2xint64" in caught.value.message


def test_wrong_number_of_inputs_names_those_wanted() -> None:
    with pytest.raises(RunnerError, match=r"expected 2 inputs \(image, length\), got 1"):
        check_inputs([IMAGE, LENGTH], [np.zeros((1, 3, 8, 8), np.float32)])


def test_varying_dimensions_take_any_size_but_zero() -> None:
    spec = TensorSpec(name="x", shape=(None, 4), dtype="float32")
    assert check_inputs([spec], [np.zeros((7, 4), np.float32)])
    with pytest.raises(RunnerError, match="dimension 0 is 0"):
        check_inputs([spec], [np.zeros((0, 4), np.float32)])


def test_a_scalar_stays_a_scalar() -> None:
    assert check_inputs([LENGTH], [np.array(3)])[0].shape == ()


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"not an array at all"])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(RunnerError, match=r"x\.npy is not a readable \.npy array"):
        load_npy(path)


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (tmp_path / "x.npy").write_bytes(buffer.getvalue())
    with pytest.raises(RunnerError):
        load_npy(tmp_path / "x.npy")


def test_bfloat16_comes_back_from_its_raw_bytes(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    (tmp_path / "x.npy").write_bytes(b"")
    np.save(tmp_path / "x.npy", array.view("V2"))
    spec = TensorSpec(name="x", shape=(2,), dtype="bfloat16")
    assert np.array_equal(load_npy(tmp_path / "x.npy", spec), array)
