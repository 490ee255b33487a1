"""Ranges found by the observers, against NumPy on all the data at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgectl.quantization.observers import RangeObserver
from edgectl.quantization.parameters import activation_parameters


def observed(*arrays: np.ndarray) -> RangeObserver:
    observer = RangeObserver()
    for array in arrays:
        observer.observe(torch.from_numpy(np.asarray(array, dtype=np.float32)))
    return observer


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(min_value=-1e4, max_value=1e4, width=32), min_size=1, max_size=50),
    st.lists(st.floats(min_value=-1e4, max_value=1e4, width=32), min_size=1, max_size=50),
)
def test_minmax_is_the_range_of_all_batches_with_zero(first, second):
    low, high = observed(np.array(first), np.array(second)).range(
        "minmax", percentile=0.01, levels=256
    )
    values = np.array([*first, *second, 0.0], dtype=np.float32)
    assert low == pytest.approx(values.min())
    assert high == pytest.approx(values.max())


@pytest.mark.parametrize("growth", [1.0, 3.0, 100.0])
def test_percentile_survives_batches_that_outgrow_the_histogram(growth):
    rng = np.random.default_rng(0)
    batches = [rng.normal(size=20_000) * growth**i for i in range(3)]
    low, high = observed(*batches).range("percentile", percentile=1.0, levels=256)
    everything = np.concatenate(batches)
    width = np.abs(everything).max() / 1024  # the coarsest bins that can occur
    assert low == pytest.approx(np.percentile(everything, 1.0), abs=2 * width)
    assert high == pytest.approx(np.percentile(everything, 99.0), abs=2 * width)


def test_percentile_cuts_an_outlier_and_minmax_does_not():
    data = np.concatenate([np.random.default_rng(1).uniform(0, 1, 100_000), [1000.0]])
    observer = observed(data)
    assert observer.range("percentile", percentile=0.01, levels=256)[1] < 2.0
    assert observer.range("minmax", percentile=0.01, levels=256)[1] == 1000.0


def test_mse_range_has_less_error_than_minmax_on_heavy_tails():
    data = np.random.default_rng(2).laplace(size=200_000).astype(np.float32)
    observer = observed(data)

    def error(kind):
        chosen = activation_parameters(*observer.range(kind, percentile=0.01, levels=256))
        tensor = torch.from_numpy(data)
        back = torch.fake_quantize_per_tensor_affine(
            tensor, chosen.scale, chosen.zero_point, -128, 127
        )
        return float(((tensor - back) ** 2).mean())

    assert error("mse") < 0.9 * error("minmax")


def test_minus_infinity_of_a_mask_is_allowed_and_nan_is_reported():
    assert observed(np.array([-np.inf, 1.0, 2.0])).spread.finite
    assert not observed(np.array([np.nan, 1.0])).spread.finite
    assert not observed(np.array([np.inf, 1.0])).spread.finite


@settings(max_examples=60, deadline=None)
@given(
    st.floats(min_value=-1e6, max_value=0, width=32),
    st.floats(min_value=0, max_value=1e6, width=32),
)
def test_zero_is_stored_exactly_and_the_range_is_covered_to_one_step(low, high):
    chosen = activation_parameters(low, high)
    assert -128 <= chosen.zero_point <= 127
    bottom, top = chosen.range
    assert bottom <= 0 <= top
    assert bottom <= low + chosen.scale
    assert top >= high - chosen.scale
