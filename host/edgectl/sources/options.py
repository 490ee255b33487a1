"""What a caller of `load` may ask for, in one record that can travel to another process."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgectl.sources.images import ImageOptions, image_array
from edgectl.sources.input_specs import DimensionRange, InputSpec

__all__ = ["GivenInput", "LoadOptions", "options_from_document", "options_to_document"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenInput:
    """An input array from the caller; ``name`` is ``None`` where only its position is known.

    With ``image``, ``array`` holds pixels (uint8 [height, width, 3]) that become a tensor when
    the shape of the input is known.
    """

    name: str | None
    array: np.ndarray
    image: ImageOptions | None = None

    def fitted(self, shape: Sequence[int | None] | None, dtype: str) -> np.ndarray:
        """The array for an input of this shape and dtype (``None``: nothing is known of it)."""
        if self.image is None:
            return self.array
        return image_array(self.array, self.image, shape, dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """``seed`` makes example inputs and their variations the same every time."""

    input_specs: tuple[InputSpec, ...] = ()
    inputs: tuple[GivenInput, ...] = ()
    dynamic: tuple[DimensionRange, ...] = ()
    architecture: str | None = None
    state_key: str | None = None
    keep_half: bool = False
    seed: int = 0


def options_to_document(options: LoadOptions) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The options as JSON values, and the arrays of their inputs by position."""
    document = {
        "input_specs": [dataclasses.asdict(spec) for spec in options.input_specs],
        "dynamic": [dataclasses.asdict(item) for item in options.dynamic],
        "input_names": [given.name for given in options.inputs],
        "images": [given.image and dataclasses.asdict(given.image) for given in options.inputs],
        "architecture": options.architecture,
        "state_key": options.state_key,
        "keep_half": options.keep_half,
        "seed": options.seed,
    }
    return document, {str(i): given.array for i, given in enumerate(options.inputs)}


def options_from_document(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> LoadOptions:
    """What `options_to_document` wrote."""
    return LoadOptions(
        input_specs=tuple(
            InputSpec(name=s["name"], shape=tuple(s["shape"]), dtype=s["dtype"])
            for s in document["input_specs"]
        ),
        dynamic=tuple(DimensionRange(**item) for item in document["dynamic"]),
        inputs=tuple(
            GivenInput(name=name, array=arrays[str(i)], image=_image(image))
            for i, (name, image) in enumerate(
                zip(document["input_names"], document["images"], strict=True)
            )
        ),
        architecture=document["architecture"],
        state_key=document["state_key"],
        keep_half=document["keep_half"],
        seed=document["seed"],
    )


def _image(document: dict[str, Any] | None) -> ImageOptions | None:
    if document is None:
        return None
    size = document["size"]
    return ImageOptions(
        size=tuple(size) if size else None,
        mean=tuple(document["mean"]),
        std=tuple(document["std"]),
    )
