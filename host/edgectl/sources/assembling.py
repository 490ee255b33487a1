"""From a loaded module to an `ExportedModel`: inputs, eager calls, export, and a comparison.

The exported program is run once beside the original module. Where the two differ, export has
captured something else than the model computes (a Python-side counter, a random draw), and the
model is refused rather than deployed with wrong numbers.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils import _pytree as pytree

from edgectl.errors import EdgectlError, UsageError
from edgectl.records import ExportedModel, TensorSpec
from edgectl.sources.arguments import by_forward, from_options, overridden, without_indices
from edgectl.sources.dynamic import with_dynamic
from edgectl.sources.exporting import export_program, user_line
from edgectl.sources.faithful import check_captured, check_repeatable
from edgectl.sources.flattening import flattened
from edgectl.sources.golden import (
    STATEFUL_CALLS,
    call_watched,
    fresh,
    make_calls,
    successive_arguments,
)
from edgectl.sources.loaded import Arguments, Loaded
from edgectl.sources.naming import input_names, output_names, parameter_names
from edgectl.sources.options import LoadOptions
from edgectl.sources.precision import upcast
from edgectl.sources.tensors import dtype_name

__all__ = ["assemble"]


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
    if loaded.program is None:
        if _behaves_otherwise_in_training(module):
            notes.append("the module was in training mode; it is compiled in eval mode")
        module.eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)

    names, arguments = _arguments(loaded, options, notes)
    if loaded.program is None and not options.keep_half:
        arguments = upcast(module, arguments, notes)
    first, writes, arguments = _first_result(module, arguments, options, notes)
    program = loaded.program or _exported(loaded, names, arguments, options)
    count = STATEFUL_CALLS if writes else 1
    successive = successive_arguments(arguments, count, seed=options.seed)
    original = fresh(module)
    calls = make_calls(original, successive)
    check_repeatable(module, original, arguments, calls[0], stateful=writes)
    if loaded.program is None:
        check_captured(program, successive, calls)

    leaves = input_names(names, arguments)
    inputs = _input_specs(program, leaves)
    flat = tuple(leaf for _, leaf in leaves if isinstance(leaf, torch.Tensor))
    return ExportedModel(
        name=loaded.name,
        source_kind=kind,
        digest=digest or _digest(program),
        program=flattened(program, tuple(spec.name for spec in inputs), flat),
        inputs=inputs,
        output_names=tuple(name for name, _ in output_names(first)),
        calls=calls,
        notes=tuple(notes),
    )


def _behaves_otherwise_in_training(module: nn.Module) -> bool:
    kinds = (_BatchNorm, _DropoutNd)
    return any(isinstance(part, kinds) and part.training for part in module.modules())


def _arguments(
    loaded: Loaded, options: LoadOptions, notes: list[str]
) -> tuple[list[str], Arguments]:
    module = loaded.module
    if loaded.program is not None:
        example = loaded.example or _placeholders(loaded.program, notes)
        names = _program_names(loaded.program, example)
        if options.dynamic:
            raise UsageError(
                "--dynamic comes too late for an exported program: its sizes are in its graph.",
                next_step="Export it with dynamic_shapes=..., or name the factory instead.",
            )
        return names, overridden(names, example, options)
    if loaded.example is not None:
        if loaded.names is not None:
            # Its kind has put the caller's inputs in place already.
            return list(loaded.names), loaded.example
        example = by_forward(module, loaded.example)
        names = parameter_names(module, example)
        return names, overridden(names, example, options)
    arguments = from_options(module, options)
    if len(options.inputs) < len(options.input_specs):
        notes.append("compared on random inputs; --input gives real ones")
    return parameter_names(module, arguments), arguments


def _exported(
    loaded: Loaded, names: list[str], arguments: Arguments, options: LoadOptions
) -> ExportedProgram:
    if loaded.dynamic_shapes is not None:
        return export_program(fresh(loaded.module), arguments, dynamic_shapes=loaded.dynamic_shapes)
    widened, shapes = with_dynamic(names, arguments, options)
    if loaded.exporter is not None:
        return loaded.exporter(fresh(loaded.module), widened, shapes)
    return export_program(fresh(loaded.module), widened, dynamic_shapes=shapes)


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


def _first_result(
    module: nn.Module, arguments: Arguments, options: LoadOptions, notes: list[str]
) -> tuple[Any, bool, Arguments]:
    """The result of the first call, whether it wrote to its state, and the arguments it took."""
    try:
        return *call_watched(fresh(module), arguments), arguments
    except EdgectlError:
        raise
    except IndexError as error:
        made_up = options.input_specs and not options.inputs
        zeros = without_indices(arguments)
        if not made_up or zeros is None:
            raise _eager_failed(error) from error
        notes.append("integer inputs are zeros, because the model takes no larger index")
    except Exception as error:
        raise _eager_failed(error) from error
    try:
        return *call_watched(fresh(module), zeros), zeros
    except Exception as error:
        raise _eager_failed(error) from error


def _eager_failed(error: Exception) -> UsageError:
    line = user_line(error.__traceback__)
    return UsageError(
        f"The model fails on these inputs in PyTorch itself: {type(error).__name__}: "
        f"{_reason(error)}",
        cause=f"Raised at {line}." if line else None,
        next_step="Check shapes, dtypes and value ranges of --input or --input-spec.",
    )


def _reason(error: Exception) -> str:
    """The line that says what is wrong; TorchScript puts a traceback before it."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    if not lines:
        return "no message"
    scripted = "TorchScript" in lines[0]
    return (lines[-1] if scripted else lines[0])[:300]


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
        shape: Any = value.shape if isinstance(value, torch.Tensor) else leaf.shape
        specs.append(
            TensorSpec(
                name=name,
                shape=tuple(size if isinstance(size, int) else None for size in shape),
                dtype=dtype_name(leaf.dtype),
            )
        )
    return tuple(specs)


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
