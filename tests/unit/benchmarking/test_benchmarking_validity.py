"""Which runs may be quoted, and what a refusal says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgectl_runner.contract import LoadPlan, SystemSample
from support.benchmarks import QUIET, latencies, run_of, trace


def test_a_quiet_run_is_valid_and_has_its_metric():
    values = latencies(1024)
    run = run_of(values)
    assert run.valid
    assert run.notes == ()
    assert run.metric.value == float(np.sort(values)[1024 - 80])  # 80 may lie beyond p90


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (0x1, "supply voltage"),
        (0x2, "capped"),
        (0x4, "throttled"),
        (0x8, "soft temperature"),
        (0x40000, "throttled"),
        (0x50005, "supply voltage"),
    ],
)
def test_a_planted_throttle_flag_invalidates_the_run(flags, reason):
    points = trace(30.0)
    points = (*points[:20], replace(points[20], throttle_flags=flags), *points[21:])
    run = run_of(latencies(), points=points)
    assert not run.valid
    assert any(reason in why for why in run.invalid)


def test_trouble_between_two_looks_shows_in_the_flags_afterwards():
    run = run_of(latencies(), after=replace(QUIET, throttle_flags=0x10000))
    assert run.invalid == ("the supply voltage was too low",)


def test_trouble_before_the_run_is_a_note_only():
    old = replace(QUIET, throttle_flags=0x50000)
    run = run_of(latencies(), before=old, after=old, points=trace(30.0, throttle_flags=0x50000))
    assert run.valid
    assert any("0x50000" in note for note in run.notes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"other_load": 1.2}, "1.2 processors busy"),
        ({"temperature_celsius": 83.0}, "83 C"),
    ],
)
def test_company_and_heat_invalidate(changes, reason):
    run = run_of(latencies(), points=trace(30.0, **changes))
    assert not run.valid
    assert reason in run.invalid[0]


def test_a_falling_clock_invalidates_unless_the_board_idles_between_queries():
    points = (*trace(15.0), *trace(15.0, cpu_frequency_mhz=(1000.0,) * 4))
    assert run_of(latencies(), points=points).invalid == (
        "the clock fell from 1800 to 1000 MHz during the run",
    )
    plan = LoadPlan(scenario="server", target_qps=5.0)
    assert run_of(latencies(), points=points, plan=plan).valid


def test_a_run_given_up_or_never_settled_says_so():
    run = run_of(latencies(20), complete=False, stable=False)
    assert "never settled" in run.invalid[0]
    assert "20 of 64 queries" in run.invalid[1]


def test_a_board_that_tells_nothing_is_not_called_invalid_but_unknown():
    nothing = SystemSample()
    points = trace(
        30.0, temperature_celsius=None, cpu_frequency_mhz=(), throttle_flags=None, other_load=None
    )
    run = run_of(latencies(), before=nothing, after=nothing, points=points)
    assert run.valid
    assert len(run.notes) == 4


def test_too_few_queries_give_no_metric_but_the_number_that_is_needed():
    run = run_of(latencies(63))
    assert run.metric.value is None
    assert {q.percentile: q.needed_queries for q in run.quantiles}[90.0] == 64
