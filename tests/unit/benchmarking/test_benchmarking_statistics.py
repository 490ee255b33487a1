"""Figures on traces whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from edgectl.benchmarking import CompareOptions
from edgectl.benchmarking.capacity import highest_rate
from edgectl.benchmarking.intervals import (
    critical_rank,
    paired_ratio,
    rounds_needed,
    unpaired_ratio,
)
from edgectl.benchmarking.statistics import (
    binomial_cdf,
    early_stopping,
    min_queries,
    quantile_interval,
    tail_allowance,
)
from edgectl.benchmarking.summarize import quantiles_of

ROUNDS = CompareOptions().rounds


@pytest.mark.parametrize(
    ("percentile", "tail", "queries"),
    [
        (90.0, 1, 64), (95.0, 1, 130), (99.0, 1, 662), (99.9, 1, 6636),
        (90.0, 10, 197), (95.0, 10, 398), (99.0, 10, 2010), (99.9, 10, 20140),
        (90.0, 100, 1246),
    ],
)  # fmt: skip
def test_early_stopping_needs_the_queries_that_mlperf_says(percentile, tail, queries):
    assert min_queries(percentile, tail=tail) == queries
    assert tail_allowance(queries, percentile) == tail
    assert tail_allowance(queries - 1, percentile) == tail - 1


@pytest.mark.parametrize(("k", "n", "p"), [(0, 64, 0.1), (1, 662, 0.01), (700, 1024, 0.7), (90, 10**6, 1e-4)])  # fmt: skip
def test_the_binomial_distribution_is_scipys(k, n, p):
    assert binomial_cdf(k, n, p) == pytest.approx(float(stats.binom.cdf(k, n, p)), rel=1e-9)


def test_the_estimate_drops_all_but_one_of_the_tail():
    values = np.random.default_rng(0).permutation(np.arange(1.0, 198.0))  # 197: ten are allowed
    assert early_stopping(values, 90.0) == 188.0  # nine of 197 are dropped, the tenth is it
    assert early_stopping(np.arange(1.0, 65.0), 90.0) == 64.0
    assert early_stopping(np.arange(1.0, 64.0), 90.0) is None


def test_early_stopping_is_below_the_true_percentile_in_one_of_a_hundred_runs_at_most():
    source = np.random.default_rng(1)
    true = float(stats.lognorm.ppf(0.9, 0.2))
    low = sum(early_stopping(source.lognormal(0.0, 0.2, 128), 90.0) < true for _ in range(4000))
    assert low <= 4000 * 0.01 + 3 * np.sqrt(4000 * 0.01)


def test_quantiles_of_a_known_trace():
    by_percentile = {q.percentile: q for q in quantiles_of(tuple(np.arange(0.0, 1001.0)))}
    assert by_percentile[50.0].value_ms == 500.0
    assert by_percentile[90.0].value_ms == 900.0
    assert by_percentile[99.0].value_ms == 990.0
    assert by_percentile[99.9].early_stopping_ms is None
    assert by_percentile[99.9].needed_queries == 6636


@pytest.mark.parametrize(("percentile", "count"), [(50.0, 100), (90.0, 200), (99.0, 1024)])
def test_the_interval_of_a_quantile_holds_it_as_often_as_it_says(percentile, count):
    source = np.random.default_rng(2)
    true = float(stats.lognorm.ppf(percentile / 100, 0.3))
    held = 0
    for _ in range(2000):
        low, high = quantile_interval(
            source.lognormal(0.0, 0.3, count), percentile, confidence=0.95
        )
        held += (low is None or low <= true) and (high is None or true <= high)
    # At least 95 %; it may be more, as ranks are whole numbers.
    assert held >= 2000 * 0.95 - 3 * np.sqrt(2000 * 0.95 * 0.05)


def test_an_interval_without_an_order_statistic_to_serve_is_open():
    assert quantile_interval(np.arange(1.0, 65.0), 99.0) == (pytest.approx(58, abs=8), None)


@pytest.mark.parametrize("rounds", [8, 10, 15, 20])
def test_the_signed_rank_limits_are_those_of_scipys_test(rounds):
    """The outermost Walsh averages that count are where scipy's exact p-value crosses 1 %."""
    outside = critical_rank(rounds, 0.99)
    differences = np.arange(1.0, rounds + 1)
    total = 0
    for statistic in (outside - 1, outside):
        # Signs such that the sum of the negative ranks is the statistic.
        signs, left = np.ones(rounds), statistic
        for rank in range(rounds, 0, -1):
            if rank <= left:
                signs[rank - 1], left = -1, left - rank
        p = stats.wilcoxon(differences * signs, method="exact").pvalue
        total += p <= 0.01
    assert total == 1, "the first is significant, the second is not"


def test_too_few_rounds_are_no_interval():
    assert [rounds_needed(c) for c in (0.95, 0.99, 0.999)] == [6, 8, 11]
    with pytest.raises(ValueError, match="8 needed"):
        paired_ratio([1.0] * 7, [1.0] * 7)


def _rounds(source: np.random.Generator, regression: float) -> tuple[list[float], list[float]]:
    """As many as the command makes: 2 % noise on a query, 1 % on a process, drift, one spoilt."""
    sides: tuple[list[float], list[float]] = ([], [])
    spoilt = source.integers(ROUNDS)
    for number in range(ROUNDS):
        drift = 1 + 0.004 * number
        for side, factor in enumerate((1.0, 1.0 + regression)):
            process = source.lognormal(0.0, 0.01) * (1.4 if number == spoilt and side == 0 else 1)
            values = 30.0 * factor * drift * process * source.lognormal(0.0, 0.02, 16)
            sides[side].append(float(np.median(values)))
    return sides


def test_a_planted_regression_is_found_and_none_is_not_in_95_of_100_trials():
    source = np.random.default_rng(3)
    found = sum(paired_ratio(*_rounds(source, 0.05)).low > 1.0 for _ in range(100))
    quiet = 0
    for _ in range(100):
        interval = paired_ratio(*_rounds(source, 0.0))
        quiet += interval.low <= 1.0 <= interval.high
    assert found >= 95
    assert quiet >= 95


def test_the_paired_interval_holds_the_true_ratio_as_often_as_it_says():
    source = np.random.default_rng(4)
    held = 0
    for _ in range(1000):
        a, b = source.lognormal(0, 0.02, 10), 1.05 * source.lognormal(0, 0.02, 10)
        interval = paired_ratio(a, b, confidence=0.95)
        held += interval.low <= 1.05 <= interval.high
    assert held >= 1000 * 0.95 - 3 * np.sqrt(1000 * 0.95 * 0.05)


def _correlated(source: np.random.Generator, count: int, factor: float) -> np.ndarray:
    """Latencies of which each resembles the one before (autocorrelation 0.5)."""
    noise = source.normal(0, 0.02, count)
    for i in range(1, count):
        noise[i] += 0.5 * noise[i - 1]
    return 30.0 * factor * np.exp(noise)


def test_two_finished_runs_too_in_95_of_100_trials_though_their_latencies_are_correlated():
    source = np.random.default_rng(5)
    found = quiet = 0
    for seed in range(100):
        base = _correlated(source, 400, 1.0)
        slower = unpaired_ratio(base, _correlated(source, 400, 1.05), seed=seed, resamples=400)
        same = unpaired_ratio(base, _correlated(source, 400, 1.0), seed=seed, resamples=400)
        found += slower.low > 1.0
        quiet += same.low <= 1.0 <= same.high
    assert found >= 95
    assert quiet >= 95


@pytest.mark.parametrize("true", [1.0, 7.0, 42.0, 99.0])
def test_the_highest_rate_is_found_within_five_percent_and_never_above(true):
    found = highest_rate(lambda rate: rate <= true, 100.0)
    assert found is not None
    assert found <= true
    assert found > 0.95 * true - 100 / 2**8


def test_no_rate_is_found_where_none_holds():
    assert highest_rate(lambda rate: False, 100.0) is None
