"""Quantiles and summaries of latencies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgectl_runner.measurement import quantile, summarize


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=60), st.floats(0.0, 1.0))
def test_quantiles_are_numpys(values: list[float], fraction: float) -> None:
    expected = float(np.quantile(np.array(values), fraction))
    assert quantile(sorted(values), fraction) == pytest.approx(expected, rel=1e-9)


def test_summary_of_known_latencies() -> None:
    summary = summarize([4.0, 1.0, 3.0, 2.0])
    assert summary is not None
    assert (summary.iterations, summary.min_ms, summary.max_ms) == (4, 1.0, 4.0)
    assert summary.mean_ms == 2.5
    assert summary.p50_ms == 2.5


def test_nothing_measured_is_no_summary() -> None:
    assert summarize([]) is None
