"""Calibration data: a folder of pictures, ``.npy``/``.npz``, ``file.py:function``, or an iterable.

Everything is read sample by sample, so that ten thousand pictures do not need the memory of ten
thousand pictures.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgectl.errors import UsageError
from edgectl.quantization.calibrate import Sample
from edgectl.records import TensorSpec
from edgectl.sources.images import ImageOptions, image_array, read_pixels
from edgectl.sources.tensors import to_tensor

__all__ = ["CalibrationData", "calibration_data"]

_PICTURES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff"}


@dataclass(frozen=True, slots=True)
class CalibrationData:
    """Samples that can be read again from the start; ``description`` says where they come from."""

    description: str
    start: Callable[[], Iterator[Sample]]
    limit: int | None = None

    def __iter__(self) -> Iterator[Sample]:
        return itertools.islice(self.start(), self.limit)


def calibration_data(
    source: str | Path | Iterable[Any] | CalibrationData,
    inputs: Sequence[TensorSpec],
    *,
    samples: int | None = None,
    seed: int = 0,
    images: ImageOptions | None = None,
) -> CalibrationData:
    """Opens ``source`` for a model with these inputs.

    Args:
        source: a folder of pictures; ``.npy`` (samples along the first axis) or ``.npz`` (one
            array for each input, by name or in order); ``file.py:function`` (the function
            returns an iterable of samples); or an iterable. A sample is a tensor or array for a
            model with one input, else a tuple or a dict by input name.
        inputs: the model's inputs, in order.
        samples: at most so many; a folder is shuffled with ``seed`` first.
        images: how pictures become tensors.

    Raises:
        UsageError: there is no such source, or it does not fit the inputs.
    """
    if isinstance(source, CalibrationData):
        return CalibrationData(source.description, source.start, samples or source.limit)
    if not isinstance(source, str | Path):
        kept = source if isinstance(source, Sequence | np.ndarray) else _kept(source, samples)
        return CalibrationData(
            "an iterable", lambda: (_as_sample(item, inputs) for item in kept), samples
        )
    text = str(source)
    path = Path(text).expanduser()
    if path.is_dir():
        files = _pictures(path, seed)
        options = images or ImageOptions()
        return CalibrationData(
            f"{len(files)} pictures of {path.name}",
            lambda: _picture_samples(files, inputs, options),
            samples,
        )
    if path.suffix in (".npy", ".npz") and path.is_file():
        return CalibrationData(path.name, lambda: _array_samples(path, inputs), samples)
    if ":" in text and not path.exists():
        from edgectl.sources.factory import resolve

        function = resolve(text)
        return CalibrationData(
            text, lambda: (_as_sample(item, inputs) for item in function()), samples
        )
    what = "is no picture folder, .npy or .npz" if path.exists() else "does not exist"
    raise UsageError(
        f"Calibration data {text!r} {what}.",
        next_step="Pass a folder of pictures, FILE.npy, FILE.npz or FILE.py:FUNCTION.",
    )


def _kept(source: Iterable[Any], samples: int | None) -> list[Any]:
    # An iterator can be read once, and calibration reads twice.
    return list(itertools.islice(source, samples or 4096))


def _as_sample(item: Any, inputs: Sequence[TensorSpec]) -> Sample:
    if isinstance(item, dict):
        missing = [spec.name for spec in inputs if spec.name not in item]
        if missing:
            raise UsageError(
                f"A calibration sample lacks the input {missing[0]!r}; it has "
                f"{', '.join(map(str, item)) or 'nothing'}."
            )
        values = [item[spec.name] for spec in inputs]
    elif isinstance(item, tuple | list):
        values = list(item)
    else:
        values = [item]
    tensors = [_tensor(value) for value in values]
    return [
        t.unsqueeze(0) if t.dim() + 1 == len(spec.shape) and spec.shape[0] in (1, None) else t
        for t, spec in zip(tensors, inputs, strict=False)
    ] + tensors[len(inputs) :]


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach()
    return to_tensor(np.asarray(value))


def _pictures(folder: Path, seed: int) -> list[Path]:
    files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in _PICTURES and p.is_file())
    if not files:
        raise UsageError(
            f"{folder} holds no pictures.",
            next_step=f"Put {', '.join(sorted(_PICTURES))} files there; 32 to 256 are usual.",
        )
    random.Random(seed).shuffle(files)  # noqa: S311  (a sample, not a secret)
    return files


def _picture_samples(
    files: Sequence[Path], inputs: Sequence[TensorSpec], options: ImageOptions
) -> Iterator[Sample]:
    if len(inputs) != 1:
        raise UsageError(
            f"The model takes {len(inputs)} inputs, so a folder of pictures does not say enough.",
            next_step="Use --calibration FILE.py:FUNCTION that yields one tuple for each call.",
        )
    spec = inputs[0]
    batch = (spec.shape[0] or 1) if len(spec.shape) == 4 else 1
    shape = (1, *spec.shape[1:]) if len(spec.shape) == 4 else spec.shape
    group: list[np.ndarray] = []
    for file in files:
        group.append(image_array(read_pixels(file), options, shape, spec.dtype))
        if len(group) == batch:
            yield [to_tensor(np.concatenate(group) if len(spec.shape) == 4 else group[0])]
            group = []
    if group and len(group) < batch:
        filled = (group * batch)[:batch]
        yield [to_tensor(np.concatenate(filled))]


def _array_samples(path: Path, inputs: Sequence[TensorSpec]) -> Iterator[Sample]:
    loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        arrays = [loaded]
    else:
        names = list(loaded.files)
        by_name = all(spec.name in names for spec in inputs)
        chosen = [spec.name for spec in inputs] if by_name else names[: len(inputs)]
        arrays = [loaded[name] for name in chosen]
    if len(arrays) != len(inputs):
        raise UsageError(
            f"{path} holds {len(arrays)} arrays; the model takes {len(inputs)} inputs."
        )
    columns = [_split(path, a, spec) for a, spec in zip(arrays, inputs, strict=True)]
    for row in zip(*columns, strict=False):
        yield [to_tensor(np.asarray(value)) for value in row]


def _split(path: Path, array: np.ndarray, spec: TensorSpec) -> Iterator[np.ndarray]:
    """Single samples of an array that holds one, or many along its first axis."""
    shape = spec.shape

    def fits(have: Sequence[int], want: Sequence[int | None]) -> bool:
        return len(have) == len(want) and all(
            w is None or h == w for h, w in zip(have, want, strict=True)
        )

    if array.dtype.name != spec.dtype:
        raise UsageError(
            f"{path} holds {array.dtype.name}; input {spec.name!r} takes {spec.dtype}.",
            next_step=f"Save it as {spec.dtype}, normalised as the model expects.",
        )
    if fits(array.shape[1:], shape):
        return iter(array)
    batch = shape[0] if shape and shape[0] is not None else 1
    if shape and fits(array.shape[1:], shape[1:]) and len(array) >= batch:
        whole = len(array) // batch
        return (array[i * batch : (i + 1) * batch] for i in range(whole))
    raise UsageError(
        f"{path} holds an array of shape {list(array.shape)}; input {spec.name!r} takes "
        f"{[d if d is not None else '?' for d in shape]}, or many of those along a first axis."
    )
