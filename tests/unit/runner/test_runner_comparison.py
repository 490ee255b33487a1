"""What counts as the right answer, and what never does."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgectl_runner.compare import compare_outputs
from edgectl_runner.contract import GoldenLimits, OutputComparison, to_document

LIMITS = GoldenLimits()


def compare(got: object, expected: object, limits: GoldenLimits = LIMITS) -> OutputComparison:
    return compare_outputs("y", 0, np.asarray(got), np.asarray(expected), limits)


def test_figures_of_a_known_difference() -> None:
    result = compare(np.float32([1.0, 2.0, 4.5]), np.float32([1.0, 2.0, 5.0]))
    assert result.max_absolute_error == 0.5
    assert result.max_relative_error == pytest.approx(0.1)
    assert result.sqnr_db == pytest.approx(10 * math.log10(30.0 / 0.25))
    assert result.cosine == pytest.approx(27.5 / math.sqrt(30 * 25.25))
    assert result.top1_agreement == 1.0
    assert not result.passed
    assert "relative error 0.1" in (result.reason or "")


def test_the_same_numbers_pass_and_are_exact() -> None:
    result = compare(np.float32([1, -2]), np.float32([1, -2]))
    assert result.passed
    assert result.sqnr_db is None
    assert result.max_relative_error == 0.0


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_non_finite_number_fails_whatever_the_limits(wrong: float) -> None:
    loose = GoldenLimits(max_relative_error=None, min_sqnr_db=None)
    assert not compare([1.0, wrong], [1.0, 2.0], loose).passed


def test_nan_where_pytorch_has_nan_is_right() -> None:
    assert compare([np.nan, 1.0], [np.nan, 1.0]).passed


def test_a_number_where_pytorch_has_nan_is_wrong() -> None:
    assert not compare([0.0, 1.0], [np.nan, 1.0]).passed


def test_infinity_of_the_other_sign_is_wrong() -> None:
    assert compare([np.inf], [np.inf]).passed
    assert not compare([np.inf], [-np.inf]).passed


def test_an_all_nan_output_does_not_pass_as_equal_to_numbers() -> None:
    assert not compare(np.full(5, np.nan, np.float32), np.zeros(5, np.float32)).passed


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.bool_])
def test_integers_and_booleans_are_exact(dtype: type) -> None:
    assert compare(np.array([0, 1], dtype), np.array([0, 1], dtype)).passed
    result = compare(np.array([0, 1], dtype), np.array([1, 1], dtype))
    assert not result.passed
    assert result.reason == "1 of 2 elements differ"


def test_large_integers_that_float64_cannot_tell_apart_still_differ() -> None:
    assert not compare(np.array([2**60]), np.array([2**60 + 1])).passed


@pytest.mark.parametrize("got", [np.zeros(3, np.float32), np.zeros((2, 1), np.float32)])
def test_another_shape_fails(got: np.ndarray) -> None:
    assert not compare(got, np.zeros(2, np.float32)).passed


def test_another_dtype_fails() -> None:
    assert not compare(np.zeros(2, np.float64), np.zeros(2, np.float32)).passed


def test_sqnr_is_the_judge_where_rounding_differs() -> None:
    limits = GoldenLimits(max_relative_error=None, min_sqnr_db=30.0)
    assert compare([1.0, 1.001], [1.0, 1.0], limits).passed
    assert not compare([1.0, 1.5], [1.0, 1.0], limits).passed


def test_expected_zeros_are_no_division_by_zero() -> None:
    assert compare(np.zeros(4), np.zeros(4)).passed
    wrong = compare(np.full(4, 1e-3), np.zeros(4))
    assert not wrong.passed
    json.dumps(to_document(wrong), allow_nan=False)


def test_top1_agreement_counts_rows() -> None:
    expected = np.float32([[1, 2], [2, 1], [0, 1], [1, 0]])
    got = np.float32([[1, 2], [2, 1], [0, 1], [0, 1]])
    assert compare(got, expected).top1_agreement == 0.75


def test_complex_outputs_are_compared_in_both_parts() -> None:
    assert compare(np.array([1 + 2j]), np.array([1 + 2j])).passed
    assert not compare(np.array([1 + 2j]), np.array([1 + 3j])).passed


@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20),
    st.integers(0, 19),
    st.floats(0.01, 10.0),
)
def test_one_element_moved_by_more_than_the_limit_is_found(
    values: list[float], where: int, factor: float
) -> None:
    expected = np.array(values)
    scale = float(np.abs(expected).max()) or 1.0
    got = expected.copy()
    got[where % len(values)] += factor * scale
    assert not compare(got, expected).passed


def test_a_wrong_element_in_the_last_block_of_a_large_output_is_found() -> None:
    expected = np.ones(600_001, np.float32)
    got = expected.copy()
    got[-1] = 1.5
    result = compare(got, expected)
    assert result.max_absolute_error == 0.5
    assert not result.passed
