"""Where calibration data come from, and what is said when they do not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from edgectl.errors import UsageError
from edgectl.quantization import calibration_data, quantize
from edgectl_runner.contract import TensorSpec
from support.quantized_models import exported

IMAGE = (TensorSpec(name="x", shape=(1, 3, 8, 6), dtype="float32"),)


def test_a_folder_of_pictures_is_resized_and_limited(tmp_path):
    for index in range(5):
        Image.new("RGB", (20, 30), (50 * index, 0, 0)).save(tmp_path / f"{index}.png")
    (tmp_path / "notes.txt").write_text("not a picture")
    samples = list(calibration_data(tmp_path, IMAGE, samples=3))
    assert [tuple(s[0].shape) for s in samples] == [(1, 3, 8, 6)] * 3


def test_the_choice_of_pictures_follows_the_seed(tmp_path):
    for index in range(20):
        Image.new("RGB", (6, 8), (10 * index, 0, 0)).save(tmp_path / f"{index:02}.png")

    def first(seed):
        return float(next(iter(calibration_data(tmp_path, IMAGE, seed=seed)))[0][0, 0, 0, 0])

    assert first(1) == first(1)
    assert len({first(seed) for seed in range(6)}) > 1


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="holds no pictures"):
        calibration_data(tmp_path, IMAGE)


@pytest.mark.parametrize("shape", [(5, 3, 8, 6), (5, 1, 3, 8, 6)])
def test_npy_is_split_along_its_first_axis(tmp_path, shape):
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    np.save(tmp_path / "x.npy", array)
    samples = list(calibration_data(tmp_path / "x.npy", IMAGE))
    assert len(samples) == 5
    np.testing.assert_array_equal(samples[2][0].numpy().reshape(3, 8, 6), array[2].reshape(3, 8, 6))


def test_npz_is_read_by_input_name(tmp_path):
    specs = (
        TensorSpec(name="a", shape=(1, 2), dtype="float32"),
        TensorSpec(name="b", shape=(1, 3), dtype="float32"),
    )
    np.savez(tmp_path / "x.npz", b=np.ones((4, 3), np.float32), a=np.zeros((4, 2), np.float32))
    samples = list(calibration_data(tmp_path / "x.npz", specs))
    assert len(samples) == 4
    assert samples[0][0].shape == (1, 2)
    assert samples[0][1].shape == (1, 3)


def test_the_wrong_dtype_is_an_error_not_a_conversion(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 3, 8, 6), np.uint8))
    with pytest.raises(UsageError, match="uint8"):
        list(calibration_data(tmp_path / "x.npy", IMAGE))


def test_a_function_is_read_lazily(tmp_path):
    (tmp_path / "mydata.py").write_text(
        "import torch\n"
        "def batches():\n"
        "    for i in range(10**9):\n"
        "        yield torch.full((1, 3, 8, 6), float(i))\n"
    )
    data = calibration_data(f"{tmp_path}/mydata.py:batches", IMAGE, samples=4)
    assert [float(s[0].mean()) for s in data] == [0, 1, 2, 3]
    assert len(list(data)) == 4  # and again from the start


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    return exported(
        nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), (torch.randn(1, 4),)
    )


def test_no_calibration_data_is_refused(small):
    with pytest.raises(UsageError, match="needs calibration data"):
        quantize(small, "int8")
    with pytest.raises(UsageError, match="no calibration data"):
        quantize(small, "int8", [])


def test_constant_calibration_data_are_refused(small):
    with pytest.raises(UsageError, match="constant"):
        quantize(small, "int8", [torch.zeros(1, 4)] * 8)


def test_equal_samples_are_warned_about(small):
    same = [torch.randn(1, 4, generator=torch.Generator().manual_seed(0))] * 8
    report = quantize(small, "int8", same).report
    assert any("are the same" in w for w in report["warnings"])


def test_nan_in_the_data_is_refused(small):
    with pytest.raises(UsageError, match="NaN"):
        quantize(small, "int8", [torch.full((1, 4), float("nan"))])


def test_an_overflow_inside_is_refused_by_layer():
    class Overflow(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.second(torch.exp(self.first(x) * 1e4))

    torch.manual_seed(0)
    model = exported(Overflow(), (torch.randn(1, 4) * 1e-3,))
    with pytest.raises(UsageError, match="exp"):
        quantize(model, "int8", [torch.randn(1, 4) for _ in range(8)])


def test_a_wrong_shape_names_both_shapes(small):
    with pytest.raises(UsageError, match=r"\[1, 5\].*\[1, 4\]"):
        quantize(small, "int8", [torch.randn(1, 5)] * 8)
