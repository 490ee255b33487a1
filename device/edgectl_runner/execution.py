"""The ``run`` verb, in the process that may crash: golden calls first, then the clock.

This runs in a child, so that an illegal instruction or a fault in native code ends in a sentence
instead of taking the agent along. Arrays are mapped one file at a time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from edgectl_runner import __version__
from edgectl_runner.binding import native_runtime
from edgectl_runner.compare import compare_outputs
from edgectl_runner.contract import (
    EntryPoint,
    GoldenLimits,
    LoadPlan,
    LoadResult,
    Manifest,
    OutputComparison,
    RunReport,
    RunRequest,
    SystemSample,
    TensorSpec,
    from_document,
)
from edgectl_runner.engine import Engine, PreparedCall, Value
from edgectl_runner.failures import MISMATCH, USAGE, RunnerError
from edgectl_runner.manifests import plain_name
from edgectl_runner.measurement import measure, summarize
from edgectl_runner.process_facts import is_emulated, peak_rss_bytes
from edgectl_runner.scenarios import check_plan, run_scenario, warm_up
from edgectl_runner.system_facts import sample
from edgectl_runner.tensors import load_npy, save_npz
from edgectl_runner.tracing import Tracer

__all__ = ["check_golden", "check_health", "execute", "load_engine"]


def load_engine(manifest: Manifest, folder: Path, entry: EntryPoint, threads: int | None) -> Engine:
    """The engine of one entry point of an installed (and verified) release."""
    states = {s.initial: load_npy(folder / s.initial, s.spec) for s in entry.states}
    parameters = {
        Path(name).stem: folder / name for name in manifest.files if name.endswith(".irpa")
    }
    return Engine.load(
        folder / manifest.module, entry, states=states, parameters=parameters, threads=threads
    )


def check_golden(
    manifest: Manifest,
    folder: Path,
    engine: Engine,
    entry_index: int,
    *,
    beat: Callable[[], None] = lambda: None,
) -> list[OutputComparison]:
    """Makes every golden call of the entry point in order and compares each tensor output.

    States run on from call to call, as they did in PyTorch.
    """
    comparisons: list[OutputComparison] = []
    engine.reset()
    for number, call in enumerate(manifest.golden):
        if call.entry_point != entry_index:
            continue
        specs = engine.entry.inputs
        inputs = [load_npy(folder / n, s) for n, s in zip(call.inputs, specs, strict=False)]
        values = engine.call(inputs)
        beat()
        del inputs
        bindings = [b for b in engine.entry.outputs if b.source != "literal"]
        tensors = [
            v for b, v in zip(engine.entry.outputs, values, strict=True) if b.source != "literal"
        ]
        if len(call.outputs) != len(bindings):
            raise RunnerError(
                f"golden call {number} has {len(call.outputs)} outputs, the model {len(bindings)}",
                cause="the bundle is not consistent",
            )
        for binding, value, name in zip(bindings, tensors, call.outputs, strict=True):
            expected = load_npy(folder / name, binding.spec)
            comparisons.append(
                compare_outputs(binding.name, number, value, expected, manifest.golden_limits)
            )
    return comparisons


def execute(
    manifest: Manifest, folder: Path, request: RunRequest, incoming: Path, *, agent_pid: int
) -> RunReport:
    """Checks, runs and times; ``agent_pid`` is the process that waits for the report."""
    if request.cpu_affinity is not None:
        _pin(request.cpu_affinity)
    if not 0 <= request.entry_point < len(manifest.entry_points):
        raise RunnerError(
            f"there is no entry point {request.entry_point}; the release has "
            f"{len(manifest.entry_points)}",
            code=USAGE,
        )
    entry = manifest.entry_points[request.entry_point]
    plan = request.load
    if plan is not None:
        check_plan(plan)
    before = _sample()
    runtime = native_runtime()  # its import is not the model's load time
    if plan is not None and plan.spin_us is not None:
        runtime.parse_flags(f"--task_worker_spin_us={plan.spin_us}")

    start = time.perf_counter_ns()
    engine = load_engine(manifest, folder, entry, request.threads)
    load_ms = (time.perf_counter_ns() - start) / 1e6
    comparisons = check_golden(manifest, folder, engine, request.entry_point)
    if request.reset_state:
        engine.reset()
    prepared = engine.prepare(_inputs(manifest, folder, request, entry, incoming))
    outputs = engine.call(prepared)
    outputs_file = _keep_outputs(entry, outputs, request, incoming)
    described = _describe_outputs(entry, outputs)
    del outputs
    passed = all(c.passed for c in comparisons)
    latencies: list[float] = []
    load: LoadResult | None = None

    def keep_going() -> bool:
        return os.getppid() == agent_pid

    if passed and plan is not None:
        prepared = _batched(engine, prepared, plan)
        latencies, load = _make_load(engine, prepared, plan, keep_going)
        # A board that computes wrong numbers when it is hot does so after the timing.
        again = check_golden(manifest, folder, engine, request.entry_point)
        if not all(c.passed for c in again):
            comparisons, latencies, load = again, [], None
    elif passed and request.iterations > 0:
        latencies = measure(
            engine,
            prepared,
            warmup_iterations=request.warmup_iterations,
            iterations=request.iterations,
            min_seconds=request.min_seconds,
            keep_going=keep_going,
        )
    return RunReport(
        release=request.release,
        comparisons=tuple(comparisons),
        latency=summarize(latencies),
        latencies_ms=tuple(round(value, 6) for value in latencies),
        outputs=described,
        outputs_file=outputs_file,
        load_ms=load_ms,
        peak_rss_bytes=peak_rss_bytes(),
        threads=engine.threads,
        before=before,
        after=_sample(),
        machine=os.uname().machine,
        emulated=is_emulated(),
        runner_version=__version__,
        load=load,
    )


def _make_load(
    engine: Engine, prepared: PreparedCall, plan: LoadPlan, keep_going: Callable[[], bool]
) -> tuple[list[float], LoadResult]:
    with Tracer(interval_s=plan.trace_interval_s) as tracer:
        warmup_ms, stable = warm_up(engine, prepared, plan, keep_going=keep_going)
        tracer.start_clock()
        timed = run_scenario(engine, prepared, plan, keep_going=keep_going)
    result = LoadResult(
        plan=plan,
        starts_ms=tuple(round(value, 3) for value in timed.starts_ms),
        duration_s=timed.duration_s,
        samples=timed.samples,
        warmup_ms=tuple(round(value, 6) for value in warmup_ms),
        stable=stable,
        complete=timed.complete,
        trace=tracer.points,
    )
    return list(timed.latencies_ms), result


def _batched(engine: Engine, prepared: PreparedCall, plan: LoadPlan) -> PreparedCall:
    """The same inputs, repeated along the leading dimension; each copy must give the same."""
    if plan.batch == 1:
        return prepared
    entry = engine.entry
    if not any(s.shape and s.shape[0] is None for s in entry.inputs):
        raise RunnerError(
            f"the model takes no batch of {plan.batch}: the leading dimension of its inputs is "
            "fixed",
            code=USAGE,
            next_step="compile it with --dynamic for that dimension",
        )
    if entry.states:
        raise RunnerError("a model with states cannot be timed in batches", code=USAGE)
    single = engine.call(prepared)
    arrays = [
        np.concatenate([a] * plan.batch) if s.shape and s.shape[0] is None else a
        for s, a in zip(entry.inputs, prepared.arrays, strict=True)
    ]
    batched = engine.prepare(arrays)
    # Tiles of another size add up in another order, so the last bits may differ.
    limits = GoldenLimits(max_relative_error=1e-3)
    for binding, value, one in zip(entry.outputs, engine.call(batched), single, strict=True):
        if not isinstance(value, np.ndarray) or not isinstance(one, np.ndarray) or not one.ndim:
            continue
        expected = np.concatenate([one] * plan.batch)
        compared = compare_outputs(binding.name, 0, value, expected, limits)
        if not compared.passed:
            raise RunnerError(
                f"output {binding.name!r} of a batch of {plan.batch} is not that of single calls: "
                f"{compared.reason}",
                code=MISMATCH,
            )
    return batched


def check_health(
    manifest: Manifest,
    folder: Path,
    *,
    window_s: float,
    max_latency_ms: float | None,
    beat: Callable[[], None],
) -> dict[str, str | None]:
    """Whether every entry point gives its golden outputs, in time and for ``window_s`` seconds.

    ``beat`` is called after each step. ``reason`` says what is wrong, ``None`` when nothing is.
    """
    for index, entry in enumerate(manifest.entry_points):
        engine = load_engine(manifest, folder, entry, None)
        beat()
        deadline = time.monotonic() + window_s
        while True:
            for comparison in check_golden(manifest, folder, engine, index, beat=beat):
                if not comparison.passed:
                    reason = (
                        f"output {comparison.name!r} of golden call {comparison.call} is wrong: "
                        f"{comparison.reason}"
                    )
                    return {"reason": reason}
            if time.monotonic() >= deadline:
                break
        slow = _too_slow(manifest, folder, engine, index, max_latency_ms)
        engine.close()
        if slow is not None:
            return {"reason": slow}
    return {"reason": None}


def _too_slow(
    manifest: Manifest, folder: Path, engine: Engine, index: int, limit_ms: float | None
) -> str | None:
    calls = [c for c in manifest.golden if c.entry_point == index]
    if limit_ms is None or not calls:
        return None
    specs = engine.entry.inputs
    prepared = engine.prepare(
        [load_npy(folder / n, s) for n, s in zip(calls[0].inputs, specs, strict=False)]
    )
    summary = summarize(measure(engine, prepared, warmup_iterations=1, iterations=5))
    if summary is not None and summary.p50_ms > limit_ms:
        return f"a call takes {summary.p50_ms:.1f} ms, more than the {limit_ms:g} ms allowed"
    return None


def _sample() -> SystemSample:
    return from_document(SystemSample, sample())


def _inputs(
    manifest: Manifest, folder: Path, request: RunRequest, entry: EntryPoint, incoming: Path
) -> list[np.ndarray]:
    if request.inputs is not None:
        paths = [incoming / plain_name(name) for name in request.inputs]
    else:
        calls = [c for c in manifest.golden if c.entry_point == request.entry_point]
        if not calls:
            raise RunnerError(
                "the bundle holds no example inputs and none were given",
                code=USAGE,
                next_step="give the inputs with --input",
            )
        paths = [folder / name for name in calls[0].inputs]
    specs: list[TensorSpec | None] = [*entry.inputs, *[None] * len(paths)]
    return [load_npy(path, spec) for path, spec in zip(paths, specs, strict=False)]


def _keep_outputs(
    entry: EntryPoint, outputs: list[Value], request: RunRequest, incoming: Path
) -> str | None:
    if request.outputs is None:
        return None
    path = incoming / plain_name(request.outputs)
    arrays = {
        binding.name: value
        for binding, value in zip(entry.outputs, outputs, strict=True)
        if isinstance(value, np.ndarray)
    }
    save_npz(path, arrays)
    return str(path)


def _describe_outputs(entry: EntryPoint, outputs: list[Value]) -> dict[str, TensorSpec]:
    return {
        binding.name: TensorSpec(name=binding.name, shape=value.shape, dtype=value.dtype.name)
        for binding, value in zip(entry.outputs, outputs, strict=True)
        if isinstance(value, np.ndarray)
    }


def _pin(processors: tuple[int, ...]) -> None:
    try:
        os.sched_setaffinity(0, processors)
    except (OSError, ValueError) as error:
        have = ",".join(str(n) for n in sorted(os.sched_getaffinity(0)))
        wanted = ",".join(str(n) for n in processors)
        raise RunnerError(
            f"cannot run on processors {wanted}; this device has {have}", code=USAGE
        ) from error
