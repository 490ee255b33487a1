"""Input files of every kind, and what is wrong with those that are none."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgectl.errors import UsageError
from edgectl.sources import read_inputs
from edgectl.sources.images import image_array, parse_image_options


def test_npz_keeps_names_and_positions_have_none(tmp_path: Path) -> None:
    np.savez(tmp_path / "named.npz", ids=np.arange(3), mask=np.ones(3))
    np.savez(tmp_path / "plain.npz", np.zeros(2), np.ones(2))
    named = read_inputs([tmp_path / "named.npz"])
    plain = read_inputs([tmp_path / "plain.npz"])
    assert [item.name for item in named] == ["ids", "mask"]
    assert [item.name for item in plain] == [None, None]


def test_a_name_can_be_given_to_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    (item,) = read_inputs([f"ids={tmp_path / 'a.npy'}"])
    assert item.name == "ids"
    assert item.array.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("missing.npy", None, "does not exist"),
        ("text.npy", b"hello", "no input that edgectl reads"),
        ("cut.npy", b"\x93NUMPY\x01\x00v\x00{'descr'", "holds no NumPy array"),
        ("cut.png", b"\x89PNG\r\n\x1a\nxxxx", "cannot be read as a picture"),
        ("cut.wav", b"RIFF\x00\x00\x00\x00WAVEfmt ", "cannot be read as sound"),
    ],
)
def test_each_bad_file_is_told(tmp_path: Path, name: str, content: bytes | None, word: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=word):
        read_inputs([tmp_path / name])


def test_arrays_of_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(UsageError, match="holds no NumPy array"):
        read_inputs([tmp_path / "objects.npy"])


def test_a_picture_is_cropped_scaled_and_normalised() -> None:
    # Left half black, right half white, twice as wide as high: the middle keeps both halves.
    pixels = np.zeros((10, 20, 3), dtype=np.uint8)
    pixels[:, 10:] = 255
    options = parse_image_options(mean="0.5", std="0.5")
    array = image_array(pixels, options, (1, 3, 10, 10), "float32")
    assert array.shape == (1, 3, 10, 10)
    assert array.dtype == np.float32
    assert array[0, :, :, 0].tolist() == [[-1.0] * 10] * 3
    assert array[0, :, :, -1].tolist() == [[1.0] * 10] * 3


def test_channels_last_grey_and_bytes() -> None:
    pixels = np.full((8, 8, 3), 77, dtype=np.uint8)
    plain = parse_image_options()
    assert image_array(pixels, plain, (1, 4, 6, 3), "float32").shape == (1, 4, 6, 3)
    assert image_array(pixels, plain, (1, 1, 28, 28), "float32").shape == (1, 1, 28, 28)
    assert np.unique(image_array(pixels, plain, (1, 3, 8, 8), "uint8")).tolist() == [77]


def test_a_picture_of_unknown_size_is_refused() -> None:
    pixels = np.zeros((4, 4, 3), dtype=np.uint8)
    with pytest.raises(UsageError, match="how large") as caught:
        image_array(pixels, parse_image_options(), None, "float32")
    assert "--image-size" in (caught.value.next_step or "")
    assert image_array(pixels, parse_image_options(size="8x6"), None, "float32").shape == (
        1,
        3,
        8,
        6,
    )


def test_a_photograph_is_turned_upright(tmp_path: Path) -> None:
    picture = Image.new("RGB", (4, 2))
    exif = picture.getexif()
    exif[0x0112] = 6  # taken with the camera turned by 90 degrees
    picture.save(tmp_path / "turned.jpg", exif=exif)
    (item,) = read_inputs([tmp_path / "turned.jpg"])
    assert item.array.shape == (4, 2, 3)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_sound_of_every_sample_width_is_scaled_to_one(tmp_path: Path, width: int) -> None:
    path = tmp_path / "a.wav"
    full = 2 ** (8 * width - 1)
    values = [0, full // 2, -full]
    if width == 1:
        values = [value + 128 for value in values]
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(width)
        sound.setframerate(16000)
        sound.writeframes(b"".join(v.to_bytes(width, "little", signed=width > 1) for v in values))
    (item,) = read_inputs([path])
    np.testing.assert_allclose(item.array, [[0.0, 0.5, -1.0]])
