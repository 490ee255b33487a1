"""What needs no device, through the real commands: comparing files, reports, messages."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from edgectl.benchmarking import keep
from edgectl.settings import load_settings
from edgectl_runner.contract import to_document
from support.benchmarks import benchmark_of, latencies, run_of
from support.command import Edgectl


@pytest.fixture
def command(tmp_path):
    return Edgectl(home=tmp_path / "home")


@pytest.fixture
def files(tmp_path):
    """A benchmark, one that is 5 % slower, and one of the same speed."""
    paths = []
    for name, mean_ms, seed in (("base", 30.0, 1), ("slower", 31.5, 2), ("same", 30.0, 3)):
        report = benchmark_of(run_of(latencies(400, mean_ms=mean_ms, seed=seed)))
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps(to_document(report)))
    return paths


def test_a_regression_beyond_the_limit_is_exit_code_9(command, files):
    base, slower, same = files
    found = command("compare", base, slower, "--max-regression", "2%").expect(9)
    assert "worse" in found.stdout
    assert "more than the 2.0% allowed" in found.stderr
    assert "next:" in found.stderr
    command("compare", base, slower, "--max-regression", "7%").expect(0)
    command("compare", base, slower).expect(0)
    assert (
        "no difference" in command("compare", base, same, "--max-regression", "0").expect(0).stdout
    )


def test_with_json_a_regression_is_still_one_document(command, files):
    base, slower, _ = files
    found = command("compare", base, slower, "--max-regression", "2", "--json").expect(9)
    assert found.document["rows"][0]["verdict"] == "worse"
    assert "allowed" in found.document["error"]


def test_an_invalid_comparison_is_refused_where_that_was_asked_for(command, files, tmp_path):
    spoilt = tmp_path / "spoilt.json"
    report = benchmark_of(run_of(latencies(), stable=False))
    spoilt.write_text(json.dumps(to_document(report)))
    assert "INVALID" in command("compare", files[0], spoilt).expect(0).stdout
    assert (
        "never settled" in command("compare", files[0], spoilt, "--require-valid").expect(7).stderr
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "{base}", "model.pt2"], "finished benchmark"),
        (["compare", "a.pt2", "b.pt2", "--rounds", "3"], "3 rounds cannot give an interval"),
        (["compare", "{base}", "{base}", "--max-regression", "lots"], "no share in percent"),
        (["compare", "a.pt2", "b.pt2", "--build", "--quantise int8"], "--quantise"),
        (["compare", "a.pt2", "b.pt2", "--build", "'"], "No closing quotation"),
        (["bench", "a.pt2", "--threads", "1,x"], "numbers from 1 up"),
        (["bench", "a.pt2", "--cpu-affinity", "one"], "list of cores"),
        (["bench", "a.pt2", "--report", "out.pdf"], "what kind of report"),
        (["report", "render", "{base}", "-o", "out.docx"], "what kind of report"),
        (["report", "history", "nobody", "-o", "out.html"], "No benchmark of 'nobody'"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(command, files, words, message):
    ended = command(*(w.format(base=files[0]) for w in words)).expect(2)
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_report_is_rendered_again_from_its_file(command, files, tmp_path):
    page, table, queries = (tmp_path / n for n in ("out.html", "out.csv", "queries.csv"))
    command("report", "render", files[0], "-o", page, "--queries", queries).expect(0)
    assert page.read_text().startswith("<!doctype html>")
    assert len(queries.read_text().splitlines()) == 401
    command("report", "render", files[0], "-o", table).expect(0)
    assert table.read_text().count("single_stream") == 1


def test_the_history_of_a_model_is_plotted(command, tmp_path):
    settings = load_settings({"EDGECTL_HOME": str(tmp_path / "home")})
    report = benchmark_of(run_of(latencies(100)))
    for day in (1, 2, 3):
        keep(replace(report, created=f"2026-12-0{day}T10:00:00+00:00"), settings)
    page = tmp_path / "history.html"
    found = command("report", "history", "mobilenet", "-o", page, "--json").expect(0)
    assert found.document["benchmarks"] == 3
    assert page.read_text().count('class="point"') == 3
