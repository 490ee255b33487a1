"""Recipes by name."""

from __future__ import annotations

import json

import pytest

from edgectl.errors import UsageError
from edgectl.quantization import RECIPES, recipe_of


def test_int8_is_short_for_the_static_recipe():
    assert recipe_of("int8") == RECIPES["static_wi8_ai8"]


def test_an_unknown_recipe_names_the_known_ones():
    with pytest.raises(UsageError) as caught:
        recipe_of("int4")
    assert "static_wi8_ai8" in (caught.value.next_step or "")


def test_a_recipe_that_cannot_be_says_why():
    with pytest.raises(UsageError) as caught:
        recipe_of("static_wi8_ai16")
    assert "48 bits" in (caught.value.cause or "")


def test_best_turns_all_three_refinements_on():
    best = recipe_of("int8", quality="best")
    assert best.equalize
    assert best.correct_bias
    assert best.adaptive_rounding


def test_a_recipe_is_json():
    document = recipe_of("int8", keep_float=("head",)).to_document()
    assert json.loads(json.dumps(document))["keep_float"] == ["head"]
