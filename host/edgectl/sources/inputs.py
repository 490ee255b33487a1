"""Input files to arrays, told apart by content: ``.npy``, ``.npz``, pictures, ``.wav``, text."""

from __future__ import annotations

import wave
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgectl.errors import UsageError
from edgectl.sources.images import ImageOptions, is_image, read_pixels
from edgectl.sources.options import GivenInput

__all__ = ["read_inputs"]

_HEAD_BYTES = 16


def read_inputs(
    inputs: Sequence[Path | str | np.ndarray | GivenInput],
    *,
    images: ImageOptions | None = None,
    tokenizer: str | None = None,
) -> tuple[GivenInput, ...]:
    """Reads every file; arrays pass as they are. ``name=FILE`` gives an input its name.

    Pictures stay pixels here, and become tensors when the model's shape is known. Sound becomes
    float32 [channels, samples] in -1..1. Text needs ``tokenizer`` (`text_inputs`).

    Raises:
        UsageError: a file is missing or is none of these.
    """
    given: list[GivenInput] = []
    for item in inputs:
        if isinstance(item, GivenInput):
            given.append(item)
        elif isinstance(item, np.ndarray):
            given.append(GivenInput(name=None, array=item))
        else:
            given += _read(str(item), images or ImageOptions(), tokenizer)
    return tuple(given)


def _read(text: str, images: ImageOptions, tokenizer: str | None) -> list[GivenInput]:
    name, path = None, Path(text).expanduser()
    if not path.exists() and "=" in text:
        name, _, rest = text.partition("=")
        path = Path(rest).expanduser()
    if not path.is_file():
        what = "is a folder, not an input file" if path.is_dir() else "does not exist"
        raise UsageError(f"{path} {what}.", next_step="Check the path with ls.")
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith((b"\x93NUMPY", b"PK\x03\x04")):
        found = _numpy(path)
    elif is_image(head):
        found = [GivenInput(name=None, array=read_pixels(path), image=images)]
    elif head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        found = [GivenInput(name=None, array=_sound(path))]
    elif tokenizer is not None:
        from edgectl.sources.text import text_inputs

        found = text_inputs(path, tokenizer)
    else:
        raise UsageError(
            f"{path} is no input that edgectl reads: it begins with {head[:8]!r}.",
            cause="Inputs are .npy, .npz, pictures (JPEG, PNG, WebP...), .wav, or text with "
            "--tokenizer FOLDER.",
            next_step="Save the array with np.save('input.npy', array).",
        )
    if name is None:
        return found
    if len(found) != 1:
        raise UsageError(
            f"{path} holds {len(found)} inputs, so it cannot be the input {name!r}.",
            next_step="Give that input in a file of its own.",
        )
    return [GivenInput(name=name, array=found[0].array, image=found[0].image)]


def _numpy(path: Path) -> list[GivenInput]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return [GivenInput(name=None, array=loaded)]
        with loaded:
            return [GivenInput(name=_plain(name), array=loaded[name]) for name in loaded.files]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, MemoryError) as error:
        pickled = "allow_pickle" in str(error)
        raise UsageError(
            f"{path} holds no NumPy array of numbers: {error}",
            cause="It was saved from a list of arrays or of objects." if pickled else None,
            next_step="Save it with np.save(path, array), or several with np.savez(path, x=...).",
        ) from error


def _plain(name: str) -> str | None:
    """``np.savez(path, a, b)`` names its arrays ``arr_0``...: positions, not names."""
    return None if name.startswith("arr_") and name[4:].isdecimal() else name


def _sound(path: Path) -> np.ndarray:
    try:
        with wave.open(str(path), "rb") as sound:
            width, channels = sound.getsampwidth(), sound.getnchannels()
            data = sound.readframes(sound.getnframes())
    except (wave.Error, EOFError) as error:
        raise UsageError(
            f"{path} cannot be read as sound: {error}",
            cause="Only uncompressed PCM is read.",
            next_step="Convert it: ffmpeg -i in.wav -c:a pcm_s16le out.wav",
        ) from error
    if width == 3:
        # 24 bits: shifted into the upper bytes of 32, so that the sign comes right.
        wide = np.zeros((len(data) // 3, 4), dtype=np.uint8)
        wide[:, 1:] = np.frombuffer(data, dtype=np.uint8).reshape(-1, 3)
        samples = wide.view("<i4").reshape(-1) / np.float32(2**31)
    elif width == 1:
        samples = (np.frombuffer(data, dtype=np.uint8).astype(np.float32) - 128) / 128
    else:
        samples = np.frombuffer(data, dtype=f"<i{width}") / np.float32(2 ** (8 * width - 1))
    return np.ascontiguousarray(samples.reshape(-1, channels).T.astype(np.float32))
