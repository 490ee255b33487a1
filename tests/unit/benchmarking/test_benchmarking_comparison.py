"""Comparisons of finished benchmarks, and files of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from edgectl.benchmarking import compare_reports, history_of, keep, read_report, regression
from edgectl.errors import UsageError
from edgectl.settings import load_settings
from edgectl_runner.contract import LoadPlan, to_document
from support.benchmarks import benchmark_of, latencies, run_of

NAMES = ("a", "b")


def _report(mean_ms: float, seed: int, **changes):
    return benchmark_of(run_of(latencies(400, mean_ms=mean_ms, seed=seed)), **changes)


def test_slower_quicker_and_the_same():
    base = _report(30.0, 1)
    verdicts = [
        compare_reports(base, _report(mean, 2), names=NAMES).rows[0].verdict
        for mean in (31.5, 28.5, 30.0)
    ]
    assert verdicts == ["worse", "better", "no difference"]


def test_a_regression_counts_when_the_whole_interval_is_beyond_the_limit():
    report = compare_reports(_report(30.0, 1), _report(31.5, 2), names=NAMES)
    error = regression(report, max_regression=0.02)
    assert error is not None
    assert error.exit_code == 9
    assert "2.0% allowed" in error.message
    assert regression(report, max_regression=0.05) is None, "5 % lies inside the interval"


def test_only_equal_settings_are_compared():
    four = run_of(latencies(), threads=4)
    one = run_of(latencies(mean_ms=90.0), threads=1)
    report = compare_reports(benchmark_of(four, one), benchmark_of(one), names=NAMES)
    assert [row.setting for row in report.rows] == ["single_stream, 1 threads"]
    offline = run_of(latencies(), plan=LoadPlan(scenario="offline"))
    with pytest.raises(UsageError, match="no run in common"):
        compare_reports(benchmark_of(four), benchmark_of(offline), names=NAMES)


def test_it_says_what_else_differed():
    other = replace(_report(30.0, 2, emulated=True), device="pi@cellar")
    notes = compare_reports(_report(30.0, 1), other, names=NAMES).notes
    assert "not interleaved" in notes[0]
    assert any("pi@cellar" in note for note in notes)
    assert any("emulated" in note for note in notes)


def test_an_invalid_run_makes_its_row_invalid():
    spoilt = benchmark_of(run_of(latencies(), stable=False))
    (row,) = compare_reports(_report(30.0, 1), spoilt, names=NAMES).rows
    assert not row.valid
    assert row.invalid[0].startswith("B: ")


def test_a_benchmark_comes_back_from_its_file(tmp_path):
    report = _report(30.0, 1)
    path = tmp_path / "a.json"
    path.write_text(json.dumps(to_document(report)))
    assert read_report(path) == report


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("", "not JSON"),
        ('{"kind": "benchmark"', "not JSON"),
        ("[1, 2]", "is no benchmark"),
        ('{"kind": "comparison"}', "but a comparison"),
        ('{"kind": "benchmark", "schema_version": 99}', "this edgectl reads version 1"),
        ('{"kind": "benchmark", "schema_version": 1}', "model is missing"),
    ],
)
def test_other_files_are_refused_in_one_sentence(tmp_path, text, message):
    path = tmp_path / "a.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=message) as caught:
        read_report(path)
    assert "edgectl bench" in caught.value.next_step


def test_kept_benchmarks_come_back_in_the_order_of_their_making(tmp_path):
    settings = load_settings({"EDGECTL_HOME": str(tmp_path)})
    made = [_report(30.0, day, created=f"2026-12-0{day}T10:00:00+00:00") for day in (2, 1, 3)]
    for report in made:
        keep(report, settings)
    assert [r.created[:10] for r in history_of("mobilenet", settings)] == [
        "2026-12-01", "2026-12-02", "2026-12-03",
    ]  # fmt: skip
    assert history_of("another", settings) == ()
