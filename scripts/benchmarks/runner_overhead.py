"""What the runner adds to a call, against iree-benchmark-module on the same module.

    python scripts/benchmarks/runner_overhead.py [--rounds 7] [--threads 1]

Compiles a chain of matrix products that takes more than 10 ms on this computer, then times it
with IREE's own tool and with `edgectl_runner.measurement`, in turns, in fresh processes. Prints
one line and ends in 1 when the median overhead is above 5 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 0.05
SIZE = 512

RUNNER = """
import json, sys
import numpy as np
from pathlib import Path
from edgectl_runner.contract import EntryPoint, OutputBinding, TensorSpec
from edgectl_runner.engine import Engine
from edgectl_runner.measurement import measure
size, threads = int(sys.argv[2]), int(sys.argv[3])
spec = TensorSpec(name="x", shape=(size, size), dtype="float32")
entry = EntryPoint(function="main", inputs=(spec,), result_count=1,
    outputs=(OutputBinding(name="y", source="result", index=0, spec=spec),))
engine = Engine.load(Path(sys.argv[1]), entry, threads=threads)
call = engine.prepare([np.zeros((size, size), np.float32)])
print(json.dumps(measure(engine, call, warmup_iterations=3, iterations=20, min_seconds=1.0)))
"""


def model(depth: int) -> str:
    kind = f"tensor<{SIZE}x{SIZE}xf32>"
    lines = [
        f"func.func @main(%x0: {kind}) -> {kind} {{",
        f"  %w = arith.constant dense<0.001> : {kind}",
        "  %zero = arith.constant 0.0 : f32",
        f"  %empty = tensor.empty() : {kind}",
        f"  %init = linalg.fill ins(%zero : f32) outs(%empty : {kind}) -> {kind}",
    ]
    lines += [
        f"  %x{n + 1} = linalg.matmul ins(%x{n}, %w : {kind}, {kind}) "
        f"outs(%init : {kind}) -> {kind}"
        for n in range(depth)
    ]
    return "\n".join([*lines, f"  return %x{depth} : {kind}", "}"])


def iree_tool_ms(module: Path, threads: int) -> float:
    device = ["--device=local-sync"]
    if threads > 1:
        device = ["--device=local-task", f"--task_topology_group_count={threads}"]
    tool = Path(sys.executable).parent / "iree-benchmark-module"
    done = subprocess.run(
        [
            str(tool),
            f"--module={module}",
            "--function=main",
            f"--input={SIZE}x{SIZE}xf32=0",
            "--benchmark_min_time=1s",
            "--benchmark_format=json",
            *device,
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    (result,) = json.loads(done.stdout[done.stdout.index("{") :])["benchmarks"]
    scale = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}[result["time_unit"]]
    return float(result["real_time"]) * scale


def runner_ms(module: Path, threads: int) -> float:
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, str(module), str(SIZE), str(threads)],
        check=True,
        capture_output=True,
        text=True,
    )
    return statistics.fmean(json.loads(done.stdout))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--depth", type=int, default=8, help="matrix products in the model")
    options = parser.parse_args()
    from iree.compiler import compile_str

    with tempfile.TemporaryDirectory() as folder:
        module = Path(folder) / "chain.vmfb"
        module.write_bytes(
            compile_str(
                model(options.depth),
                target_backends=["llvm-cpu"],
                extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-data-tiling"],
            )
        )
        pairs = []
        for number in range(options.rounds):
            # In turns, and each first every other time: a drifting clock speed hits both alike.
            order = (iree_tool_ms, runner_ms) if number % 2 else (runner_ms, iree_tool_ms)
            times = {f.__name__: f(module, options.threads) for f in order}
            pairs.append((times["iree_tool_ms"], times["runner_ms"]))
    tool = statistics.median(t for t, _ in pairs)
    ours = statistics.median(r for _, r in pairs)
    overhead = statistics.median(r / t - 1 for t, r in pairs)
    print(
        f"iree-benchmark-module {tool:.3f} ms, runner {ours:.3f} ms, "
        f"median overhead {overhead:+.2%} over {options.rounds} rounds (limit {LIMIT:.0%})"
    )
    if tool < 10.0:
        print("the model took less than 10 ms here; give a larger --depth", file=sys.stderr)
    return 0 if overhead <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
