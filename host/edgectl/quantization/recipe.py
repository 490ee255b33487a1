"""Quantization recipes as values.

A name reads as ``<when>_w<weight type>_a<activation type>``:

    static_wi8_ai8     weights and activations int8; activation ranges fixed by calibration data
    dynamic_wi8_ai8    weights int8; activation ranges of linear layers measured on each call
    weight_only_wi8    weights stored as int8, arithmetic in float32 (smaller, not faster)
    fp16               everything in half precision (worth it on a Raspberry Pi 5 only)

Weights are symmetric and by output channel, activations asymmetric and by tensor. The range of an
activation comes from ``observer``; ``equalize``, ``correct_bias`` and ``adaptive_rounding`` are
the three ways to win accuracy back without training data, all on with ``quality="best"``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from edgectl.errors import UsageError

__all__ = ["RECIPES", "Method", "Observer", "Quality", "Recipe", "recipe_of"]

Method = Literal["static", "dynamic", "weight_only", "half"]
Observer = Literal["minmax", "moving_average", "percentile", "mse"]
Quality = Literal["default", "best"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Everything that decides how a model is quantized; saved in the bundle as ``recipe.json``.

    ``percentile`` is the share (in percent) of an activation's values cut off at each end.
    ``keep_float`` holds module paths (``features.3``) that stay in float32 with all below them.
    """

    name: str
    method: Method
    weight_bits: int = 8
    activation_bits: int = 8
    observer: Observer = "percentile"
    percentile: float = 0.01
    equalize: bool = False
    correct_bias: bool = False
    adaptive_rounding: bool = False
    keep_float: tuple[str, ...] = ()
    quantized_io: bool = False

    def to_document(self) -> dict[str, Any]:
        """The recipe as plain values for JSON."""
        return {**dataclasses.asdict(self), "keep_float": list(self.keep_float)}


RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(name="static_wi8_ai8", method="static", correct_bias=True),
        Recipe(name="dynamic_wi8_ai8", method="dynamic"),
        Recipe(name="weight_only_wi8", method="weight_only", activation_bits=32),
        Recipe(name="fp16", method="half", weight_bits=16, activation_bits=16),
    )
}
_ALIASES = {"int8": "static_wi8_ai8"}
_UNAVAILABLE = {
    "static_wi8_ai16": "TOSA accumulates int16 x int8 in 48 bits, which the compiler does not have",
}


def recipe_of(name: str | Recipe, *, quality: Quality = "default", **changes: Any) -> Recipe:
    """The recipe called ``name`` (``int8`` is short for ``static_wi8_ai8``), with ``changes``.

    Raises:
        UsageError: no such recipe.
    """
    if isinstance(name, Recipe):
        recipe = name
    else:
        found = RECIPES.get(_ALIASES.get(name, name))
        if found is None:
            raise UsageError(
                f"There is no quantization recipe {name!r}.",
                cause=_UNAVAILABLE.get(name),
                next_step=f"Use one of: int8, {', '.join(RECIPES)}.",
            )
        recipe = found
    if quality not in ("default", "best"):
        raise UsageError(f"There is no quality {quality!r}; use default or best.")
    if quality == "best":
        recipe = dataclasses.replace(
            recipe, equalize=True, correct_bias=True, adaptive_rounding=True
        )
    return dataclasses.replace(recipe, **changes) if changes else recipe
