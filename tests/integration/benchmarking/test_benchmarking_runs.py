"""Benchmarks through the real runner and the real runtime, on this computer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from tiny_bundles import compile_mlir, npy, write

import edgectl
from edgectl.benchmarking import (
    PRESETS,
    SCENARIOS,
    BenchOptions,
    CompareOptions,
    benchmark,
    compare_bundles,
)
from edgectl.bundle import read_bundle
from edgectl.errors import OutputMismatchError, UsageError
from edgectl_runner.contract import (
    EntryPoint,
    GoldenCall,
    OutputBinding,
    TensorSpec,
    to_document,
)

QUICK = BenchOptions(preset=PRESETS["rapid"], queries=100, seconds=0.0, threads=(1,))


def _validate(document, name):
    schema = Path(edgectl.__path__[0]) / "schemas" / f"{name}.schema.json"
    jsonschema.validate(document, json.loads(schema.read_text(encoding="utf-8")))


def test_every_scenario_and_thread_count_gives_a_run(session, affine):
    options = replace(QUICK, scenarios=SCENARIOS, threads=(1, 2), target_qps=400.0)
    report = benchmark(session(), affine(), options)
    assert [(r.scenario, r.threads) for r in report.runs] == [
        (scenario, threads) for scenario in SCENARIOS for threads in (1, 2)
    ]
    for run in report.runs:
        assert run.queries >= (64 if run.scenario == "offline" else 100)
        assert len(run.starts_ms) == run.queries
        assert run.samples == run.queries * (8 if run.scenario == "multi_stream" else 1)
        assert run.min_ms <= run.quantiles[0].value_ms <= run.max_ms
        assert run.throughput == pytest.approx(run.samples / run.duration_s)
        assert run.trace
    _validate(to_document(report), "benchmark")


def test_the_server_issues_its_queries_when_the_seed_says(session, affine):
    options = replace(QUICK, scenarios=("server",), target_qps=500.0, seed=11)
    board = session()
    first, again = (benchmark(board, affine(), options).runs[0] for _ in range(2))
    assert first.starts_ms == again.starts_ms
    assert (
        first.starts_ms != benchmark(board, affine(), replace(options, seed=12)).runs[0].starts_ms
    )
    assert first.queries / first.duration_s == pytest.approx(500, rel=0.4)


def test_the_highest_rate_within_a_bound_is_one_that_was_measured(session, affine):
    options = replace(QUICK, scenarios=("server",), latency_bound_ms=50.0)
    report = benchmark(session(), affine(), options)
    (capacity,) = report.capacities
    kept = {
        r.target_qps for r in report.runs if r.metric.value is not None and r.metric.value <= 50
    }
    assert capacity.queries_per_s == max(kept)
    assert all(run.queries >= 662 for run in report.runs)


def test_a_planted_throttle_flag_invalidates_the_run(session, affine):
    run = benchmark(session("echo throttled=0x50005"), affine(), QUICK).runs[0]
    assert not run.valid
    assert "the board was throttled" in run.invalid
    assert "the supply voltage was too low" in run.invalid


def test_a_flag_that_appears_during_the_run_invalidates_it_too(session, affine, tmp_path):
    mark = tmp_path / "asked"
    # The first to ask is told of no trouble, everybody after that of trouble in the past.
    line = f"test -e {mark} && echo throttled=0x40000 || {{ touch {mark}; echo throttled=0x0; }}"
    board = session(line)
    mark.unlink()
    run = benchmark(board, affine(), QUICK).runs[0]
    assert "the board was throttled" in run.invalid


def test_wrong_outputs_give_no_figures(session, affine):
    with pytest.raises(OutputMismatchError) as caught:
        benchmark(session(), affine(expected_offset=0.5), QUICK)
    assert caught.value.exit_code == 8


def test_threads_affinity_and_spinning_reach_the_device(session, affine):
    options = replace(QUICK, threads=(2,), cpu_affinity=(0,), spin_us=20)
    run = benchmark(session(), affine(), options).runs[0]
    assert (run.threads, run.cpu_affinity, run.spin_us) == (2, (0,), 20)


def _dynamic(path: Path) -> Path:
    text = """
func.func @main(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %0 = arith.addf %x, %x : tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
"""
    x = np.arange(8, dtype=np.float32).reshape(1, 8)
    spec = TensorSpec(name="x", shape=(None, 8), dtype="float32")
    entry = EntryPoint(
        function="main",
        inputs=(spec,),
        outputs=(OutputBinding(name="y", source="result", index=0, spec=replace(spec, name="y")),),
        result_count=1,
    )
    files = {"module.vmfb": compile_mlir(text), "in.npy": npy(x), "out.npy": npy(2 * x)}
    return write(path, files, [entry], [GoldenCall(entry_point=0, inputs=("in.npy",), outputs=("out.npy",))])  # fmt: skip


def test_batches_are_swept_where_the_model_has_them_and_refused_where_not(
    session, affine, tmp_path
):
    board = session()
    bundle = read_bundle(_dynamic(tmp_path / "dynamic.edgectl"))
    options = replace(QUICK, scenarios=("offline",), batches=(1, 4))
    one, four = benchmark(board, bundle, options).runs
    assert (one.batch, four.batch) == (1, 4)
    assert four.samples == 4 * four.queries >= 100
    with pytest.raises(UsageError, match="no batch of 4"):
        benchmark(board, affine(), replace(QUICK, batches=(4,)))


def test_the_cool_down_comes_before_every_run(session, affine):
    slept = []
    options = replace(QUICK, threads=(1, 2), cooldown_s=7.0)
    benchmark(session(), affine(), options, sleep=slept.append)
    assert slept == [7.0, 7.0]


def test_a_bundle_against_itself_runs_interleaved_and_is_no_different_beyond_noise(session, affine):
    options = CompareOptions(rounds=8, queries=20, seconds=0.0, threads=1, seed=5)
    bundle = affine()
    report = compare_bundles(session(), bundle, bundle, options, names=("a", "b"))
    (row,) = report.rows
    assert len(row.rounds_a_ms) == len(row.rounds_b_ms) == 8
    assert row.low <= row.ratio <= row.high
    assert report.method == "interleaved"
    _validate(to_document(report), "comparison")


def test_too_few_rounds_are_refused_before_anything_runs(session, affine):
    board = session()
    with pytest.raises(UsageError, match="7 rounds cannot give an interval"):
        compare_bundles(board, affine(), affine(), CompareOptions(rounds=7), names=("a", "b"))
