"""Photographs to the tensor that a vision model takes.

The middle of the picture is cut out in the proportions of the input, resized (bilinear), scaled
to 0..1, and normalised as ``(x - mean) / std`` where these are given. A model that takes bytes
(``uint8``) gets the pixels as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgectl.errors import UsageError

__all__ = ["ImageOptions", "image_array", "is_image", "parse_image_options", "read_pixels"]

_CHANNELS = {1: "L", 3: "RGB"}
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG", b"BM", b"GIF8", b"II*\0", b"MM\0*")
_MOST_PIXELS = 200_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOptions:
    """``size`` is (height, width); ``mean`` and ``std`` hold one value, or one per channel."""

    size: tuple[int, int] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


def parse_image_options(
    size: str | None = None, mean: str | None = None, std: str | None = None
) -> ImageOptions:
    """From ``--image-size 224`` or ``224x320`` (height x width), ``--mean 0.5,0.5,0.5``, ``--std``.

    Raises:
        UsageError: one of them is no number.
    """
    sizes: tuple[int, int] | None = None
    if size is not None:
        parts = size.split("x")
        if len(parts) > 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise UsageError(
                f"--image-size {size!r} is no size.",
                next_step="Write 224, or height x width as 224x320.",
            )
        sizes = (int(parts[0]), int(parts[-1]))
    deviations = _numbers("--std", std, (1.0,))
    if 0.0 in deviations:
        raise UsageError("--std may not be 0: pixels are divided by it.", next_step="Leave it out.")
    return ImageOptions(size=sizes, mean=_numbers("--mean", mean, (0.0,)), std=deviations)


def is_image(head: bytes) -> bool:
    """By the first bytes of JPEG, PNG, WebP, BMP, GIF and TIFF."""
    return head.startswith(_MAGIC) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")


def read_pixels(path: Path) -> np.ndarray:
    """The picture as uint8 [height, width, 3], turned upright.

    Raises:
        UsageError: it cannot be read, or is unreasonably large.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as picture:
            if picture.width * picture.height > _MOST_PIXELS:
                raise UsageError(
                    f"{path} has {picture.width}x{picture.height} pixels.",
                    next_step="Make it smaller first.",
                )
            # Cameras store how they were held; what people see is the turned picture.
            upright = ImageOps.exif_transpose(picture)
            return np.asarray(upright.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UsageError(
            f"{path} cannot be read as a picture: {error}",
            cause="It is cut off or damaged.",
            next_step="Open it in a viewer and save it again.",
        ) from error


def image_array(
    pixels: np.ndarray, options: ImageOptions, shape: Sequence[int | None] | None, dtype: str
) -> np.ndarray:
    """``pixels`` for an input of this shape ([N,C,H,W], [N,H,W,C], or without N).

    Raises:
        UsageError: the shape is not one of a picture, or no size is known.
    """
    shape = tuple(shape) if shape is not None else (1, 3, *(options.size or (0, 0)))
    core = shape[-3:] if len(shape) in (3, 4) else ()
    first = len(core) == 3 and core[0] in _CHANNELS
    if not first and not (len(core) == 3 and core[2] in _CHANNELS):
        raise UsageError(
            f"An input of shape {'x'.join(map(str, shape))} does not look like a picture.",
            next_step="Give that input as a .npy file.",
        )
    channels, height, width = core if first else (core[2], core[0], core[1])
    wanted = options.size or (0, 0)
    height, width = height or wanted[0], width or wanted[1]
    if not height or not width:
        raise UsageError(
            "Nothing says how large the picture has to be for this model.",
            next_step="Add --image-size 224 (or height x width), or --input-spec.",
        )
    values = _resized(pixels, _CHANNELS[channels or 3], height, width)
    if dtype != "uint8":
        values = (values.astype(np.float32) / 255 - _row("--mean", options.mean, channels)) / _row(
            "--std", options.std, channels
        )
        values = values.astype(dtype)
    if first:
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values[None] if len(shape) == 4 else values)


def _resized(pixels: np.ndarray, mode: str, height: int, width: int) -> np.ndarray:
    from PIL import Image

    picture = Image.fromarray(pixels).convert(mode)
    scale = min(picture.width / width, picture.height / height)
    crop_width, crop_height = round(width * scale), round(height * scale)
    left, top = (picture.width - crop_width) // 2, (picture.height - crop_height) // 2
    box = (left, top, left + crop_width, top + crop_height)
    resized = picture.crop(box).resize((width, height), Image.Resampling.BILINEAR)
    array = np.asarray(resized)
    return array if array.ndim == 3 else array[:, :, None]


def _row(option: str, values: tuple[float, ...], channels: int | None) -> np.ndarray:
    if len(values) not in (1, channels):
        raise UsageError(
            f"{option} has {len(values)} values and the input {channels} channels.",
            next_step="Give one value, or one per channel.",
        )
    return np.asarray(values, dtype=np.float32)


def _numbers(option: str, text: str | None, default: tuple[float, ...]) -> tuple[float, ...]:
    if text is None:
        return default
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is no list of numbers.",
            next_step=f"Write {option} 0.485,0.456,0.406.",
        ) from None
