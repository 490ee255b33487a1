"""Markdown, CSV, and the choice of a form."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from edgectl.errors import UsageError
from edgectl.reports import (
    ReportData,
    layers_of_profile,
    queries_csv,
    report_markdown,
    runs_csv,
    with_shares,
    write_report,
)
from edgectl.reports.charts import histogram, ticks
from support.benchmarks import benchmark_of, latencies, run_of


def test_csv_has_a_row_for_each_run_and_each_query():
    report = benchmark_of(run_of(latencies(100)), run_of(latencies(64), stable=False, threads=1))
    rows = list(csv.DictReader(io.StringIO(runs_csv(report))))
    assert [row["threads"] for row in rows] == ["4", "1"]
    assert [row["valid"] for row in rows] == ["true", "false"]
    assert float(rows[0]["p50_ms"]) == pytest.approx(float(np.median(latencies(100))))
    queries = list(csv.DictReader(io.StringIO(queries_csv(report))))
    assert len(queries) == 164
    assert float(queries[0]["latency_ms"]) == pytest.approx(latencies(100)[0])


def test_markdown_cells_cannot_be_broken_by_a_name():
    report = replace(benchmark_of(run_of(latencies())), model="a|b\n<b>c")
    layers = with_shares([("x|y", "conv", 1, 1, 1.0)], whole_ms=4.0)
    text = report_markdown(ReportData(benchmark=report, layers=layers))
    assert "a\\|b &lt;b>c" in text
    assert "| `x\\|y` | conv | 1.000 | 25.0% | 0.00 |" in text


def test_markdown_says_what_is_emulated_and_invalid():
    report = benchmark_of(run_of(latencies(), stable=False), emulated=True)
    text = report_markdown(ReportData(benchmark=report))
    assert "**Emulated: no figure is a Raspberry Pi's.**" in text
    assert "is invalid: the latency never settled" in text


def test_a_name_without_a_form_is_refused(tmp_path):
    data = ReportData(benchmark=benchmark_of(run_of(latencies())))
    with pytest.raises(UsageError, match="what kind of report"):
        write_report(data, tmp_path / "out.pdf")
    with pytest.raises(UsageError, match="no folder"):
        write_report(data, tmp_path / "nowhere" / "out.html")


def test_layers_of_a_profile_are_added_up_by_name(tmp_path):
    row = {"module": "conv", "symbol": "s", "operator": "aten.conv", "macs": 10, "read_bytes": 3,
           "written_bytes": 1, "mean_ms": 0.5}  # fmt: skip
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"whole_ms": 4.0, "layers": [row, row, {**row, "module": ""}]}))
    first, second = layers_of_profile(path)
    assert (first.name, first.macs, first.bytes, first.time_ms, first.share) == (
        "conv", 20, 8, 1.0, 0.25,
    )  # fmt: skip
    assert second.name == "s"
    path.write_text("{}")
    with pytest.raises(UsageError, match="is not a profile"):
        layers_of_profile(path)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0.13, 0.31, [0.15, 0.2, 0.25, 0.3]), (5, 5, [5])],
)
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize("values", [[3.0], [3.0] * 50, [0.0, 0.0], list(np.geomspace(1, 1e4, 500))])
def test_a_histogram_counts_everything_once(values):
    import re

    svg = histogram(values, [("p50", float(np.median(values)))])
    counted = sum(int(n) for n in re.findall(r"<title>(\d+) between", svg))
    beyond = re.search(r">(\d+) slower than", svg)
    assert counted + (int(beyond.group(1)) if beyond else 0) == len(values)
