"""From a loaded module to an `ExportedModel`: inputs, eager calls, export, and a comparison.

The exported program is run once beside the original module. Where the two differ, export has
captured something else than the model computes (a Python-side counter, a random draw), and the
model is refused rather than deployed with wrong numbers.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from edgectl.errors import EdgectlError, UnsupportedModelError, UsageError
from edgectl.records import ExampleCall, ExportedModel, TensorSpec
from edgectl.sources.arguments import by_forward, from_options, overridden
from edgectl.sources.exporting import export_program, user_line
from edgectl.sources.golden import (
    STATEFUL_CALLS,
    fresh,
    make_calls,
    run,
    successive_arguments,
)
from edgectl.sources.loaded import Arguments, Loaded
from edgectl.sources.naming import input_names, output_names, parameter_names
from edgectl.sources.options import LoadOptions
from edgectl.sources.tensors import dtype_name

__all__ = ["assemble"]

_TOLERANCE = 1e-4


def assemble(
    loaded: Loaded, options: LoadOptions, *, kind: str, digest: str | None
) -> ExportedModel:
    """Makes the record; ``digest`` is ``None`` where parameters and graph identify the source.

    Raises:
        UsageError: the inputs are missing, or not what the model takes.
        UnsupportedModelError: the model cannot be exported, or not faithfully.
    """
    notes = list(loaded.notes)
    module = loaded.module
    if loaded.program is None and any(part.training for part in module.modules()):
        notes.append("the module was in training mode; it is compiled in eval mode")
        module.eval()
    for parameter in module.parameters():
        parameter.requires_grad_(requires_grad=False)

    names, arguments = _arguments(loaded, options, notes)
    first = _first_result(module, arguments)
    program = loaded.program or export_program(
        fresh(module), arguments, dynamic_shapes=loaded.dynamic_shapes
    )
    signature = program.graph_signature
    stateful = bool(signature.buffers_to_mutate or signature.user_inputs_to_mutate)
    count = STATEFUL_CALLS if stateful else 1
    successive = successive_arguments(arguments, count, seed=options.seed)
    calls = make_calls(fresh(module), successive)
    _check_faithful(module, program, successive, calls)

    leaves = input_names(names, arguments)
    return ExportedModel(
        name=loaded.name,
        source_kind=kind,
        digest=digest or _digest(program),
        program=program,
        inputs=_input_specs(program, leaves),
        output_names=tuple(name for name, _ in output_names(first)),
        calls=calls,
        notes=tuple(notes),
    )


def _arguments(
    loaded: Loaded, options: LoadOptions, notes: list[str]
) -> tuple[list[str], Arguments]:
    module = loaded.module
    if loaded.program is not None:
        example = loaded.example or _placeholders(loaded.program, notes)
        names = _program_names(loaded.program, example)
        return names, overridden(names, example, options)
    if loaded.example is not None:
        example = by_forward(module.forward, loaded.example)
        names = parameter_names(module.forward, example)
        return names, overridden(names, example, options)
    arguments = from_options(module.forward, options)
    if len(options.inputs) < len(options.input_specs):
        notes.append("compared on random inputs; --input gives real ones")
    return parameter_names(module.forward, arguments), arguments


def _program_names(program: ExportedProgram, example: Arguments) -> list[str]:
    signature = program.module_call_graph[0].signature
    names = list(getattr(signature, "forward_arg_names", None) or ())
    count = len(example.args)
    return [*names[:count], *(f"input_{i}" for i in range(len(names), count))]


def _placeholders(program: ExportedProgram, notes: list[str]) -> Arguments:
    """Seeded inputs of the shapes that the program was exported with."""
    generator = torch.Generator().manual_seed(0)
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    values: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            continue
        value = nodes[spec.arg.name].meta.get("val")
        if isinstance(value, torch.Tensor):
            shape = [int(getattr(getattr(s, "node", None), "hint", None) or s) for s in value.shape]
            value = (
                torch.randn(shape, generator=generator).to(value.dtype)
                if value.is_floating_point()
                else torch.randint(0, 2, shape, generator=generator).to(value.dtype)
            )
        values.append(value)
    notes.append("the program holds no example inputs; compared on random ones")
    args, kwargs = pytree.tree_unflatten(values, program.call_spec.in_spec)
    return Arguments(args=args, kwargs=kwargs)


def _first_result(module: nn.Module, arguments: Arguments) -> Any:
    try:
        return run(fresh(module), arguments)
    except EdgectlError:
        raise
    except Exception as error:
        line = user_line(error.__traceback__)
        raise UsageError(
            f"The model fails on these inputs in PyTorch itself: {type(error).__name__}: "
            f"{(str(error).strip().splitlines() or [''])[0][:300]}",
            cause=f"Raised at {line}." if line else None,
            next_step="Check shapes, dtypes and value ranges of --input or --input-spec.",
        ) from error


def _input_specs(program: ExportedProgram, leaves: list[tuple[str, Any]]) -> tuple[TensorSpec, ...]:
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    placeholders = [
        nodes[spec.arg.name].meta.get("val")
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]
    specs = []
    for (name, leaf), value in zip(leaves, placeholders, strict=True):
        if not isinstance(leaf, torch.Tensor):
            continue
        shape = value.shape if isinstance(value, torch.Tensor) else leaf.shape
        specs.append(
            TensorSpec(
                name=name,
                shape=tuple(size if isinstance(size, int) else None for size in shape),
                dtype=dtype_name(leaf.dtype),
            )
        )
    return tuple(specs)


def _check_faithful(
    module: nn.Module,
    program: ExportedProgram,
    successive: list[Arguments],
    calls: tuple[ExampleCall, ...],
) -> None:
    again = make_calls(fresh(module), successive[:1])[0]
    if not _close(again, calls[0]):
        raise UnsupportedModelError(
            "The model answers the same input differently each time, so nothing can tell whether "
            "the device is right.",
            cause="forward draws random numbers.",
            next_step="Make the random tensor an input, or fix it as a buffer.",
        )
    exported = make_calls(program.module(), successive)
    for index, (got, wanted) in enumerate(zip(exported, calls, strict=True)):
        if not _close(got, wanted):
            raise UnsupportedModelError(
                f"What torch.export captured computes something else than the model (call {index})."
                " Nothing was compiled.",
                cause="forward depends on Python values that change from call to call.",
                next_step="Keep such values in buffers (register_buffer) as tensors.",
            )


def _close(left: ExampleCall, right: ExampleCall) -> bool:
    if len(left.outputs) != len(right.outputs):
        return False
    for a, b in zip(left.outputs, right.outputs, strict=True):
        if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
            if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) or a != b:
                return False
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if a.dtype.kind in "biu":
            if not np.array_equal(a, b):
                return False
            continue
        wide_a, wide_b = a.astype(np.complex128), b.astype(np.complex128)
        finite = wide_b[np.isfinite(wide_b)]
        scale = float(np.max(np.abs(finite))) if finite.size else 1.0
        if not np.allclose(
            wide_a, wide_b, rtol=_TOLERANCE, atol=_TOLERANCE * scale, equal_nan=True
        ):
            return False
    return True


def _digest(program: ExportedProgram) -> str:
    """sha256 over names, dtypes, shapes and bytes of all tensors, and the graph's code."""
    digest = hashlib.sha256(program.graph_module.code.encode())
    tensors = {**program.state_dict, **program.constants}
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(name.encode())
        if isinstance(value, torch.Tensor):
            digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
            data = value.detach().contiguous().reshape(-1)
            digest.update(data.view(torch.uint8).numpy().tobytes() if data.numel() else b"")
    return digest.hexdigest()
