"""Small models, as the quantizer takes them, and the shared acceptance cases."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from edgectl.records import ExampleCall, ExportedModel
from edgectl_runner.contract import TensorSpec
from support.cases import FILE, bug_models

CASES = FILE


def acceptance_cases() -> ModuleType:
    """The module with the shared acceptance models; skips where it is absent."""
    if not CASES.is_file():
        pytest.skip(f"the acceptance models are not here ({CASES.name})")
    return bug_models()


def exported(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> ExportedModel:
    """``module`` as an `ExportedModel` with one call."""
    if not isinstance(module, torch.fx.GraphModule):
        module.eval()  # an exported graph has its mode baked in
    program = torch.export.export(module, inputs)
    with torch.no_grad():
        result = module(*inputs)
    outputs = result if isinstance(result, tuple | list) else (result,)
    names = [
        spec.arg.name for spec in program.graph_signature.input_specs if "USER" in spec.kind.name
    ]
    return ExportedModel(
        name="model",
        source_kind="test",
        digest="0" * 64,
        program=program,
        inputs=tuple(
            TensorSpec(name=name, shape=tuple(t.shape), dtype=str(t.dtype).removeprefix("torch."))
            for name, t in zip(names, inputs, strict=True)
        ),
        output_names=tuple(f"output_{i}" for i in range(len(outputs))),
        calls=(
            ExampleCall(
                inputs=tuple(t.numpy() for t in inputs),
                outputs=tuple(t.numpy() for t in outputs),
            ),
        ),
    )


def samples_like(
    inputs: tuple[torch.Tensor, ...], count: int = 16, seed: int = 0
) -> list[tuple[torch.Tensor, ...]]:
    """Random inputs of the same kind as ``inputs``, which come last."""
    generator = torch.Generator().manual_seed(seed)

    def vary(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        noise = torch.randn(tensor.shape, generator=generator)
        return noise * tensor.std().clamp_min(0.1) + tensor.mean()

    return [tuple(vary(t) for t in inputs) for _ in range(count)] + [inputs]


def operators(program: Any) -> list[str]:
    """The operators of an exported program, in order."""
    return [
        str(n.target).removesuffix(".default")
        for n in program.graph.nodes
        if n.op == "call_function"
    ]
