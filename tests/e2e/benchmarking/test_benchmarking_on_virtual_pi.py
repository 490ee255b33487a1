"""Benchmarks and comparisons through the real command and real SSH, on an aarch64 machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

import edgectl
from support import small_models

pytestmark = pytest.mark.device

MODELS = Path(small_models.__file__)
DEMO = Path(edgectl.__path__[0]).parents[1] / "scripts" / "demo_model.py"
# Here the programs of others belong to the computer around the virtual Pi, and nobody waits for
# a full preset.
SHORT = ["--device", "emulator", "--min-seconds", "0", "--max-warmup", "5"]


def _follows(document, name):
    schema = Path(edgectl.__path__[0]) / "schemas" / f"{name}.schema.json"
    jsonschema.validate(document, json.loads(schema.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def benched(virtual_pi, tmp_path_factory):
    page = tmp_path_factory.mktemp("bench") / "out.html"
    ended = virtual_pi(
        "bench", f"{MODELS}:digits", "--trust-model", *SHORT, "--preset", "rapid",
        "--scenario", "single_stream", "--scenario", "server", "--threads", "1",
        "--report", page, "--json",
    ).expect(0)  # fmt: skip
    return ended.document, page


def test_a_benchmark_has_its_metric_and_says_where_it_was_made(benched):
    document, _ = benched
    _follows(document, "benchmark")
    single, server = document["runs"]
    assert single["queries"] >= 64
    assert single["metric"]["value"] > 0
    assert server["target_qps"] == pytest.approx(0.5 * single["queries"] / single["duration_s"])
    made = document["provenance"]
    assert made["core"] == "Cortex-A72"
    assert len(made["bundle_sha256"]) == 64
    assert made["tools"]["torch"]
    assert single["trace"]


def test_a_benchmark_on_the_virtual_pi_is_labelled_everywhere(benched):
    document, page = benched
    assert document["emulated"]
    assert all("emulated: no figure is a Pi's" in run["notes"] for run in document["runs"])
    assert 'id="emulated"' in page.read_text(encoding="utf-8")


def test_two_builds_of_a_model_are_compared_interleaved(virtual_pi):
    document = virtual_pi(
        "compare", f"{MODELS}:digits", f"{MODELS}:digits", *SHORT, "--build", "--trust-model",
        "--build-b", "--no-kernels", "--threads", "1", "--rounds", "5", "--confidence", "0.9",
        "--queries", "10", "--json",
    ).expect(0).document  # fmt: skip
    _follows(document, "comparison")
    assert document["emulated"]
    (row,) = document["rows"]
    assert len(row["rounds_a_ms"]) == len(row["rounds_b_ms"]) == 5
    assert row["low"] <= row["ratio"] <= row["high"]


@pytest.mark.slow
def test_efficientnet_lite0_is_benchmarked_and_compared(virtual_pi, tmp_path):
    subprocess.run([sys.executable, DEMO, tmp_path], check=True)
    model, bundle, page = (tmp_path / n for n in ("efficientnet_lite0.pt2", "m.edgectl", "out.md"))
    virtual_pi("compile", model, "--target", "rpi4", "--trust-model", "-o", bundle).expect(0)
    report = virtual_pi(
        "bench", bundle, *SHORT, "--preset", "rapid", "--queries", "3", "--threads", "1,2",
        "--report", page, "--json", timeout_s=1800,
    ).expect(0).document  # fmt: skip
    assert [run["threads"] for run in report["runs"]] == [1, 2]
    assert "Emulated" in page.read_text(encoding="utf-8")
    same = virtual_pi(
        "compare", bundle, bundle, *SHORT, "--threads", "1", "--rounds", "5", "--confidence", "0.9",
        "--queries", "1", "--max-regression", "400%", "--json", timeout_s=3000,
    ).expect(0).document  # fmt: skip
    assert len(same["rows"][0]["rounds_a_ms"]) == 5
