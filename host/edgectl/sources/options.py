"""What a caller of `load` may ask for, in one record that can travel to another process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgectl.sources.input_specs import DimensionRange, InputSpec

__all__ = ["GivenInput", "LoadOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenInput:
    """An input array from the caller; ``name`` is ``None`` where only its position is known."""

    name: str | None
    array: np.ndarray


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
