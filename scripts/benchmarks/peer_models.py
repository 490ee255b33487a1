#!/usr/bin/env python3
"""One exported program as other runtimes want it; runs in the peers' own environment.

  peer_models.py onnx|onnx-int8|tflite|tflite-int8|ncnn|executorch MODEL.pt2 OUT [CALIBRATION.npy]

OUT is the file to write (ncnn: its stem; .param and .bin are added). The int8 forms are what
each runtime recommends for convolutions: ONNX Runtime QDQ with per-channel weights, LiteRT
static_wi8_ai8.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch


def write_onnx(program: Any, out: Path) -> None:
    """Opset 18 and an IR version that the runtime in the sysroot reads."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "model.onnx"
        torch.onnx.export(
            program, (), str(made), dynamo=True, opset_version=18, external_data=False
        )
        model = onnx.load(made)
    model.ir_version = min(model.ir_version, 10)
    onnx.save(model, out)


def write_onnx_int8(program: Any, out: Path, calibration: np.ndarray) -> None:
    """Static QDQ, int8 activations, weights per channel."""
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.calibrate import CalibrationDataReader
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self, name: str):
            self.rows = iter([{name: row[None]} for row in calibration])

        def get_next(self) -> Any:
            return next(self.rows, None)

    import onnx

    with tempfile.TemporaryDirectory() as folder:
        plain, prepared = Path(folder) / "plain.onnx", Path(folder) / "prepared.onnx"
        write_onnx(program, plain)
        quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
        name = onnx.load(prepared).graph.input[0].name
        quantize_static(
            str(prepared),
            str(out),
            Reader(name),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
        )


def write_tflite(program: Any, out: Path) -> None:
    """float32."""
    import litert_torch

    litert_torch.convert(program.module(), program.example_inputs[0]).export(str(out))


def write_tflite_int8(program: Any, out: Path, calibration: np.ndarray) -> None:
    """Static int8 with per-channel weights."""
    from ai_edge_quantizer import quantizer, recipe

    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.tflite"
        write_tflite(program, plain)
        tool = quantizer.Quantizer(str(plain))
        tool.load_quantization_recipe(recipe.static_wi8_ai8())
        data = {"serving_default": [{"args_0": row[None]} for row in calibration]}
        tool.quantize(tool.calibrate(data)).export_model(str(out), overwrite=True)


def write_ncnn(program: Any, out: Path) -> None:
    """Weights in float32; the runtime takes fp16 arithmetic by itself where the core has it."""
    import pnnx

    inputs = program.example_inputs[0]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        torch.jit.trace(program.module(), inputs, check_trace=False).save("model.pt")
        pnnx.convert("model.pt", inputs, fp16=False)
        for suffix in (".param", ".bin"):
            out.with_name(out.name + suffix).write_bytes(Path(f"model.ncnn{suffix}").read_bytes())


def write_executorch(program: Any, out: Path) -> None:
    """float32, with XNNPACK where it can."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    out.write_bytes(lowered.to_executorch().buffer)


def main() -> None:
    """Converts one model."""
    kind, source, out = sys.argv[1], sys.argv[2], Path(sys.argv[3]).resolve()
    program = torch.export.load(source)
    if kind.endswith("-int8"):
        rows = np.load(sys.argv[4])
        {"onnx-int8": write_onnx_int8, "tflite-int8": write_tflite_int8}[kind](program, out, rows)
    else:
        plain = {"onnx": write_onnx, "tflite": write_tflite, "ncnn": write_ncnn}
        {**plain, "executorch": write_executorch}[kind](program, out)


main()
