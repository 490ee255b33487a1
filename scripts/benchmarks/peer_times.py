"""Times one runtime's model; the same code for every runtime, here and on a device.

  peer_times.py RUNTIME MODEL CALL.npz ITERATIONS THREADS

RUNTIME is edgectl, onnx, tflite, ncnn or executorch. CALL.npz holds input_0.. and output_0.., what
eager PyTorch answers. Prints one JSON document: latencies in ms after a warm-up of as many calls,
and the largest difference from eager relative to the largest output. Needs NumPy and the runtime.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Arrays = Sequence[np.ndarray]


def edgectl(path: str, threads: int) -> Callable[[Arrays], Any]:
    """Our bundle's module, in IREE's runtime, as the runner on a device calls it."""
    import iree.runtime as rt

    if threads > 1:
        rt.flags.parse_flags(f"--task_topology_group_count={threads}")
    config = rt.Config("local-sync" if threads == 1 else "local-task")
    module = rt.VmModule.mmap(config.vm_instance, path)
    context = rt.SystemContext(config=config)
    context.add_vm_module(module)
    bound = context.modules[module.name]
    name = next(
        f for f in module.function_names if not f.startswith("__") and not f.endswith("$async")
    )

    def call(inputs: Arrays) -> list[np.ndarray]:
        got = bound[name](*inputs)
        got = got if isinstance(got, (tuple, list)) else [got]
        return [np.asarray(value.to_host()) for value in got]

    return call


def onnx(path: str, threads: int) -> Callable[[Arrays], Any]:
    """ONNX Runtime's CPU provider."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return lambda inputs: session.run(None, dict(zip(names, inputs, strict=True)))


def tflite(path: str, threads: int) -> Callable[[Arrays], Any]:
    """LiteRT with XNNPACK, which it takes by itself."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path, num_threads=threads)
    interpreter.allocate_tensors()
    inputs_at = [d["index"] for d in interpreter.get_input_details()]
    outputs_at = [d["index"] for d in interpreter.get_output_details()]

    def call(inputs: Arrays) -> list[np.ndarray]:
        for index, value in zip(inputs_at, inputs, strict=True):
            interpreter.set_tensor(index, value)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in outputs_at]

    return call


def ncnn(path: str, threads: int) -> Callable[[Arrays], Any]:
    """ncnn with its defaults: fp16 where the core has it, Winograd, packed layouts."""
    import ncnn as library

    net = library.Net()
    net.opt.num_threads = threads
    net.load_param(f"{path}.param")
    net.load_model(f"{path}.bin")

    def call(inputs: Arrays) -> list[np.ndarray]:
        extractor = net.create_extractor()
        for name, value in zip(net.input_names(), inputs, strict=True):
            extractor.input(name, library.Mat(value[0]).clone())
        return [np.array(extractor.extract(name)[1])[None] for name in net.output_names()]

    return call


def executorch(path: str, threads: int) -> Callable[[Arrays], Any]:
    """ExecuTorch with XNNPACK."""
    import torch
    from executorch.runtime import Runtime

    torch.set_num_threads(threads)
    method = Runtime.get().load_program(path).load_method("forward")
    return lambda inputs: [o.numpy() for o in method.execute([torch.from_numpy(v) for v in inputs])]


RUNTIMES = {f.__name__: f for f in (edgectl, onnx, tflite, ncnn, executorch)}


def main() -> None:
    """Compares, warms up, times."""
    runtime, path, call_file, iterations, threads = sys.argv[1:]
    with np.load(call_file) as arrays:
        inputs = [arrays[f"input_{i}"] for i in range(sum("input" in n for n in arrays.files))]
        wanted = [arrays[f"output_{i}"] for i in range(sum("output" in n for n in arrays.files))]
    call = RUNTIMES[runtime](path, int(threads))
    got = call(inputs)
    error = max(
        float(np.abs(np.asarray(g, np.float64).reshape(w.shape) - w).max() / np.abs(w).max())
        for g, w in zip(got, wanted, strict=True)
    )
    latencies = []
    for index in range(2 * int(iterations)):
        start = time.perf_counter_ns()
        call(inputs)
        if index >= int(iterations):
            latencies.append((time.perf_counter_ns() - start) / 1e6)
    print(json.dumps({"latencies_ms": latencies, "relative_error": error}))


main()
