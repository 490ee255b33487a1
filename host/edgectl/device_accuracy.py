"""What quantization cost, told apart from what code generation cost.

A quantized bundle holds the outputs of its golden calls twice: those of the quantized program in
PyTorch (which the device is compared with) and those of the float32 model in eager PyTorch. With
the device's own outputs that makes three, and the comparison says which step loses what.
"""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np

from edgectl.bundle import float_output_name, read_member
from edgectl.records import Bundle
from edgectl_runner.contract import RunReport

__all__ = ["device_accuracy", "quantization_report"]


def quantization_report(bundle: Bundle) -> dict[str, Any] | None:
    """The quantizer's report (layers, integer share, agreement with fp32); ``None`` for fp32."""
    if "recipe.json" not in bundle.manifest.files:
        return None
    document: dict[str, Any] = json.loads(read_member(bundle, "recipe.json"))
    return document


def device_accuracy(
    bundle: Bundle, report: RunReport, outputs: bytes | None
) -> dict[str, Any] | None:
    """Eager fp32, the quantized program and the device on the first golden call.

    Returns ``quantization``, ``code_generation`` and ``end_to_end`` (each as
    `edgectl.quantization.accuracy.Agreement`) and a ``verdict`` in words; ``None`` where there is
    nothing to tell apart: a float bundle, int8 at the boundary, or inputs of another run.
    """
    golden = bundle.manifest.golden
    if outputs is None or not golden or not report.comparisons:
        return None
    entry = bundle.manifest.entry_points[golden[0].entry_point]
    names = [b.name for b in entry.outputs if b.source != "literal"]
    files = [float_output_name(0, i) for i in range(len(entry.outputs))]
    exact = [_array(bundle, name) for name in files if name in bundle.manifest.files]
    if len(exact) != len(names):
        return None
    quantized = [_array(bundle, name) for name in golden[0].outputs]
    with np.load(io.BytesIO(outputs), allow_pickle=False) as arrays:
        device = [arrays[name] for name in names]
    if any(a.dtype != b.dtype for a, b in zip(exact, quantized, strict=True)):
        return None
    import torch

    from edgectl.quantization.accuracy import three_way

    def tensors(values: list[np.ndarray]) -> list[torch.Tensor]:
        return [torch.from_numpy(np.array(value)) for value in values]

    document = quantization_report(bundle) or {}
    reference = str(document.get("report", {}).get("reference", "fp32"))
    return three_way([tensors(exact)], [tensors(quantized)], [tensors(device)], reference=reference)


def _array(bundle: Bundle, name: str) -> np.ndarray:
    array: np.ndarray = np.load(io.BytesIO(read_member(bundle, name)), allow_pickle=False)
    return array
