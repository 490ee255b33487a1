"""Runs a lowered module on this computer with IREE, for quick comparisons with eager."""

from __future__ import annotations

from typing import Any

import numpy as np

from edgectl.records import LoweredModule

FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O2",
)


class HostModule:
    """A compiled module that answers calls; state is carried from one to the next."""

    def __init__(self, lowered: LoweredModule) -> None:
        import tempfile
        from pathlib import Path

        import iree.runtime as rt

        from edgectl.codegen.compile import run_compiler

        self.entry = lowered.entry_points[0]
        vmfb = run_compiler(lowered.bytecode, FLAGS, log_dir=Path(tempfile.mkdtemp()))
        config = rt.Config("local-sync")
        self.context = rt.SystemContext(config=config)
        self.context.add_vm_module(rt.VmModule.copy_buffer(config.vm_instance, vmfb))
        self.function = self.context.modules.module[self.entry.function]
        self.states = [lowered.initial_states[s.initial] for s in self.entry.states]

    def __call__(self, *inputs: np.ndarray) -> list[Any]:
        result = self.function(*inputs, *self.states)
        results = list(result) if isinstance(result, tuple | list) else [result]
        arrays = [np.asarray(r.to_host()) for r in results] if result is not None else []
        self.states = [arrays[s.result_index] for s in self.entry.states]
        answers: list[Any] = []
        for binding in self.entry.outputs:
            if binding.source == "literal":
                answers.append(binding.literal)
            elif binding.source == "input":
                answers.append(inputs[binding.index or 0])
            else:
                array = arrays[binding.index or 0]
                unsigned = binding.spec is not None and binding.spec.dtype == "uint8"
                answers.append(array.view(np.uint8) if unsigned else array)  # as the runner does
        return answers


def worst_error(lowered: LoweredModule) -> float:
    """Largest |difference| / max|expected| over all outputs of all golden calls."""
    module = HostModule(lowered)
    worst = 0.0
    for call in lowered.model.calls:
        for got, expected in zip(module(*call.inputs), call.outputs, strict=True):
            worst = max(worst, difference(got, expected))
    return worst


def difference(got: Any, expected: Any) -> float:
    """0 for equal; infinite for another shape, dtype or not-a-number."""
    if not isinstance(expected, np.ndarray):
        return 0.0 if got == expected and type(got) is type(expected) else float("inf")
    if got.shape != expected.shape or (got.dtype != expected.dtype):
        return float("inf")
    if expected.size == 0:
        return 0.0
    if expected.dtype.kind in "biu":
        return 0.0 if np.array_equal(got, expected) else float("inf")
    if not np.array_equal(np.isnan(got), np.isnan(expected)):
        return float("inf")
    known = np.isfinite(expected)
    if not np.array_equal(got[~known], expected[~known], equal_nan=True):
        return float("inf")
    scale = float(np.abs(expected[known]).max(initial=0.0)) or 1.0
    return float(np.abs(got[known].astype(np.float64) - expected[known]).max(initial=0.0)) / scale
