#!/usr/bin/env python3
"""What the service adds to a bare call of the engine, beside a FastAPI + ONNX Runtime server.

    scripts/benchmarks/service_overhead.py                    # the overhead on this computer
    scripts/benchmarks/service_overhead.py --peer             # and the peer, in a venv of its own

The model sums the rows of 1x3x224x224 floats, which is next to no computation, so that what is
measured is the way: HTTP, the queue, the binary tensor in and out. Both servers get the same bytes
by the same client, one request at a time over one connection, in turns (A B A B ...), so that what
else this computer does hits both. ``cpu`` is the server's processor time for one request, which a
busy computer hardly changes; latencies are of worth on a quiet one only. The peer is what one
writes in an afternoon: a FastAPI route that takes the raw body and calls ONNX Runtime, served by
uvicorn.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration" / "runner"))
sys.path.insert(0, str(ROOT / "tests" / "integration" / "service"))

from running_service import new_service  # noqa: E402
from slow_model import classifier_bundle  # noqa: E402

from edgectl.serving.client import encode_request  # noqa: E402
from edgectl_runner.contract import EntryPoint, OutputBinding, TensorSpec  # noqa: E402
from edgectl_runner.engine import Engine  # noqa: E402

LIMIT_MS = 1.5
WARMUP = 50
PEER_PACKAGES = ("fastapi", "uvicorn", "onnxruntime", "onnx", "numpy")
# The same computation.
PEER = """
import sys
import numpy as np, onnx, onnxruntime
from onnx import TensorProto, helper
from fastapi import FastAPI, Request, Response

x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 224, 224])
y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 224])
node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
axes = helper.make_tensor("axes", TensorProto.INT64, [1], [3])
graph = helper.make_graph([node], "g", [x], [y], [axes])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(model.SerializeToString(), options)
app = FastAPI()

@app.post("/infer")
async def infer(request: Request):
    x = np.frombuffer(await request.body(), np.float32).reshape(1, 3, 224, 224)
    (y,) = session.run(None, {"x": x})
    return Response(y.tobytes(), media_type="application/octet-stream")
"""


class Asker:
    """One connection that sends one request again and again."""

    def __init__(self, port: int, path: str, body: bytes, headers: dict[str, str]):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._path, self._body, self._headers = path, body, headers

    def ask(self) -> float:
        """Milliseconds of one request."""
        started = time.perf_counter_ns()
        self._connection.request("POST", self._path, body=self._body, headers=self._headers)
        response = self._connection.getresponse()
        data = response.read()
        took = (time.perf_counter_ns() - started) / 1e6
        if response.status != 200:
            raise SystemExit(f"status {response.status}: {data[:200]!r}")
        return took


def main() -> int:
    """Prints the figures; 1 if the overhead is over the limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--peer-python", type=Path, help="Python that has the peer's packages.")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    x = np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)
    with tempfile.TemporaryDirectory(prefix="edgectl-overhead-") as name:
        folder = Path(name)
        bundle = classifier_bundle(folder / "model.edgectl")
        service = new_service(folder)
        service.install({"model": bundle})
        service.start(threads=1)
        release = service.device.root / "releases" / service.models[0].release
        engine = _engine(release / "module.vmfb")
        body, headers = encode_request({"x": x})
        ours = Asker(service.port, "/v2/models/model/infer", body, headers)
        peer_process, peer = None, None
        try:
            if arguments.peer or arguments.peer_python:
                peer_process, peer = _start_peer(folder, arguments.peer_python, x)
            worker = service.now().worker_pid
            pids = {"service": worker, "peer": None if peer_process is None else peer_process.pid}
            times: dict[str, list[float]] = {"engine": [], "service": [], "peer": []}
            for number in range(arguments.requests + WARMUP):
                found = {"service": ours.ask(), "engine": _bare(engine, x)}
                if peer is not None:
                    found["peer"] = peer.ask()
                if number == WARMUP - 1:
                    before = _used(pids)
                if number >= WARMUP:
                    for key, value in found.items():
                        times[key].append(value)
            cpu = {key: used - before[key] for key, used in _used(pids).items()}
            cpu["engine"] = sum(times["engine"])  # it computes in the caller's own thread
        finally:
            service.stop()
            if peer_process is not None:
                peer_process.terminate()
                peer_process.wait()
    return _report(times, cpu, as_json=arguments.json)


def _engine(module: Path) -> Engine:
    spec = TensorSpec(name="x", shape=(1, 3, 224, 224), dtype="float32")
    out = TensorSpec(name="y", shape=(1, 3, 224), dtype="float32")
    entry = EntryPoint(
        function="main",
        inputs=(spec,),
        outputs=(OutputBinding(name="y", source="result", index=0, spec=out),),
        result_count=1,
    )
    return Engine.load(module, entry, threads=1)


def _bare(engine: Engine, x: np.ndarray) -> float:
    started = time.perf_counter_ns()
    engine.call([x])
    return (time.perf_counter_ns() - started) / 1e6


def _start_peer(
    folder: Path, python: Path | None, x: np.ndarray
) -> tuple[subprocess.Popen[bytes], Asker]:
    if python is None:
        environment = folder / "peer"
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", *PEER_PACKAGES], check=True)
    (folder / "peer_server.py").write_text(PEER, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [python, "-m", "uvicorn", "peer_server:app", "--port", str(port)]
    process = subprocess.Popen([*command, "--log-level", "warning"], cwd=folder)
    asker = Asker(port, "/infer", x.tobytes(), {"content-type": "application/octet-stream"})
    for _ in range(600):
        try:
            asker.ask()
            return process, asker
        except OSError:
            asker = Asker(port, "/infer", x.tobytes(), {})
            time.sleep(0.1)
    raise SystemExit("the peer did not start")


def _used(pids: dict[str, int | None]) -> dict[str, float]:
    return {name: _cpu_ms(pid) for name, pid in pids.items() if pid is not None}


def _cpu_ms(pid: int) -> float:
    """Processor time that a process has used (user and system)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _report(times: dict[str, list[float]], cpu: dict[str, float], *, as_json: bool) -> int:
    figures = {
        name: {
            "p10_ms": statistics.quantiles(values, n=10)[0],
            "p50_ms": statistics.median(values),
            "p99_ms": statistics.quantiles(values, n=100)[98],
            "cpu_ms": cpu[name] / len(values),
        }
        for name, values in times.items()
        if values
    }
    overhead = figures["service"]["p50_ms"] - figures["engine"]["p50_ms"]
    passed = overhead <= LIMIT_MS
    if as_json:
        print(json.dumps({"figures": figures, "overhead_p50_ms": overhead, "passed": passed}))
        return 0 if passed else 1
    for name, found in figures.items():
        shown = "   ".join(
            f"{key.removesuffix('_ms')} {value:.3f} ms" for key, value in found.items()
        )
        print(f"{name:<8} {shown}")
    print(f"overhead of the service: {overhead:.3f} ms (limit {LIMIT_MS} ms)")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
