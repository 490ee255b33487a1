"""The lowering stage: decompose, make pure, fold, legalise, convert, and account for everything."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from edgectl.errors import UnsupportedModelError
from edgectl.graph import quiet
from edgectl.lowering.conversion import convert
from edgectl.lowering.coverage import coverage_of
from edgectl.lowering.decompositions import decomposition_table
from edgectl.lowering.folding import fold_constants
from edgectl.lowering.functional import FunctionalGraph, functional_graph
from edgectl.lowering.importer import ConversionFailure, bytecode, module_path
from edgectl.lowering.legalisation import legalise
from edgectl.records import Coverage, Dialect, ExampleCall, ExportedModel, LoweredModule
from edgectl.settings import load_settings
from edgectl_runner.contract import EntryPoint, OutputBinding

__all__ = ["explain", "lower"]

_FUNCTION = "main"
Operator = tuple[str, str]  # module path, operator in the torch dialect


def lower(
    model: ExportedModel,
    *,
    dialect: str = "auto",
    strict_tosa: bool = False,
    optimize: bool = True,
    exact_rounding: bool = False,
) -> LoweredModule:
    """Lowers a model to MLIR bytecode for IREE.

    Args:
        model: from `edgectl.sources` or `edgectl.quantization`.
        dialect: ``tosa``, ``linalg``, ``stablehlo``, ``torch``, or ``auto`` (TOSA first, then
            linalg or the torch dialect for a model that TOSA cannot say).
        strict_tosa: refuse any fallback.
        optimize: run our passes on the TOSA module.
        exact_rounding: requantize as TOSA's ``rescale`` does, bit for bit, instead of the faster
            rounding that may differ by one step.

    Raises:
        UnsupportedModelError: an operation has no way down; named by module and operator.
    """
    if model.imported is not None:
        return _already_lowered(model)
    model, graph = prepare(model, exact_rounding=exact_rounding)
    refused: dict[Operator, str] = {}
    try:
        done, module = _first_that_works(
            graph.module, _wanted(dialect, strict_tosa=strict_tosa), refused, optimize=optimize
        )
    except ConversionFailure as failure:
        raise _unsupported(failure, dialect, strict_tosa=strict_tosa) from failure
    return LoweredModule(
        model=model,
        dialect=done,
        bytecode=bytecode(module),
        entry_points=(graph.entry_point,),
        initial_states=graph.initial_states,
        coverage=coverage_of(graph.module, done, refused),
        notes=_fallback_notes(done, refused),
    )


def explain(model: ExportedModel) -> Coverage:
    """What would become of every operation, without compiling anything."""
    if model.imported is not None:
        return Coverage(operators=())
    _, graph = prepare(model)
    refused: dict[Operator, str] = {}
    wanted = _wanted("auto", strict_tosa=False)
    try:
        done, _ = _first_that_works(graph.module, wanted, refused, optimize=False)
    except ConversionFailure as failure:
        hopeless = frozenset(failure.operators)
        return coverage_of(graph.module, wanted[-1], refused, hopeless)
    return coverage_of(graph.module, done, refused)


def _first_that_works(
    graph: fx.GraphModule, wanted: list[Dialect], refused: dict[Operator, str], *, optimize: bool
) -> tuple[Dialect, Any]:
    """The first dialect that takes the whole graph; ``refused`` gains why those before did not."""
    for attempt in wanted:
        try:
            _refuse_by_rule(graph, attempt)
            return attempt, convert(graph, attempt, function=_FUNCTION, optimize=optimize)
        except ConversionFailure as failure:
            for operator in failure.operators:
                refused.setdefault(operator, failure.reason or f"no lowering to {attempt}")
            if attempt is wanted[-1] or (attempt is Dialect.LINALG and not failure.retry_as_torch):
                raise
    raise UnsupportedModelError("There is no dialect left to try.")


def prepare(
    model: ExportedModel, *, exact_rounding: bool = False
) -> tuple[ExportedModel, FunctionalGraph]:
    """The model's legalised pure graph; the model's calls gain what it writes into its inputs."""
    from edgectl.lowering.integer import fold_model, holds_pairs

    if holds_pairs(model.program):
        model = fold_model(model, exact_rounding=exact_rounding)
    with quiet(), torch.no_grad():
        program = model.program.run_decompositions(decomposition_table())
    graph = functional_graph(model, program, function=_FUNCTION)
    fold_constants(graph.module)
    with quiet():
        legalise(graph.module)
    fold_constants(graph.module)
    return _with_mutations(model, graph.entry_point), graph


def _with_mutations(model: ExportedModel, entry: EntryPoint) -> ExportedModel:
    """Adds the new values of mutated inputs to the golden outputs, as eager leaves them."""
    extra = [b.name for b in entry.outputs[len(model.output_names) :]]
    if not extra:
        return model
    positions = [
        next(i for i, spec in enumerate(model.inputs) if f"{spec.name}__mutated" == name)
        for name in extra
    ]
    with quiet(), torch.no_grad():
        runnable = copy.deepcopy(model.program).module(check_guards=False)
        calls = []
        for call in model.calls:
            tensors = [torch.from_numpy(array.copy()) for array in call.inputs]
            runnable(*tensors)
            written = tuple(tensors[p].numpy() for p in positions)
            calls.append(ExampleCall(inputs=call.inputs, outputs=(*call.outputs, *written)))
    names = (*model.output_names, *extra)
    return dataclasses.replace(model, output_names=names, calls=tuple(calls))


def _wanted(dialect: str, *, strict_tosa: bool) -> list[Dialect]:
    if dialect == "auto":
        return [Dialect.TOSA] if strict_tosa else [Dialect.TOSA, Dialect.LINALG, Dialect.TORCH]
    return [Dialect(dialect)]


def _refuse_by_rule(module: fx.GraphModule, dialect: Dialect) -> None:
    """What the compilers would take without a word and get wrong, or choke on."""
    ends = {n for n in module.graph.nodes if n.op == "placeholder"}
    for node in module.graph.nodes:
        if node.op == "output":
            ends.update(node.all_input_nodes)
    for node in module.graph.nodes:
        leaves = pytree.tree_leaves(node.meta.get("val"))
        kinds = {v.dtype for v in leaves if isinstance(v, torch.Tensor)}
        name = (module_path(node), f"torch.{node.target}")
        if torch.float64 in kinds and node in ends:
            raise UnsupportedModelError(
                f"The model takes or returns float64 ({node.name}).",
                cause="IREE computes in float32 and would return other bytes than announced.",
                next_step="Convert the model by .float(), and such tensors by .to(torch.float32).",
            )
        if any(free_unbacked_symbols(v) for v in leaves if isinstance(v, torch.Tensor)):
            raise UnsupportedModelError(
                f"The size of a tensor depends on data: {node.target} in "
                f"{name[0] or 'the model itself'}.",
                cause="Compiled code has fixed shapes; picking by a mask or by nonzero has not.",
                next_step="Keep the whole tensor and use torch.where or a product with the mask; "
                "do what is left (non-maximum suppression, say) after the model.",
            )
        if any(kind.is_complex for kind in kinds):
            raise UnsupportedModelError(
                f"The model computes with complex numbers: {node.target} in "
                f"{name[0] or 'the model itself'}.",
                cause="Neither TOSA nor this compiler has complex numbers.",
                next_step="Compute with the real and the imaginary part as two tensors (a rotary "
                "embedding by cos and sin, a spectrum by a convolution with a Fourier basis).",
            )
        origin = str(node.meta.get("original_aten", ""))
        if dialect is Dialect.TOSA and origin.startswith("aten.grid_sampler"):
            raise ConversionFailure(
                operators=(name,), words=origin, reason="IREE cannot compile its gathers from TOSA"
            )


def _unsupported(
    failure: ConversionFailure, dialect: str, *, strict_tosa: bool
) -> UnsupportedModelError:
    log = load_settings().log_dir / "lowering.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(failure.words)
    places = [
        f"{operator.removeprefix('torch.')} in {path or 'the model itself'}"
        for path, operator in failure.operators
    ]
    return UnsupportedModelError(
        "The model has operations that cannot be lowered"
        f"{'' if dialect == 'auto' else f' to {dialect}'}: "
        f"{'; '.join(places[:5]) or 'see the log'}.",
        cause="torch-mlir has no lowering for them in this form."
        if not strict_tosa
        else "TOSA cannot say them, and --strict-tosa forbids another dialect.",
        next_step="Replace them in the model by operations that `edgectl explain MODEL --all` "
        f"lists as tosa; details are in {log}.",
    )


def _fallback_notes(dialect: Dialect, refused: dict[Operator, str]) -> tuple[str, ...]:
    if dialect is Dialect.TOSA or not refused:
        return ()
    names = ", ".join(sorted({operator.removeprefix("torch.") for _, operator in refused})[:8])
    return (f"lowered through the {dialect} dialect, because TOSA cannot say {names}",)


def _already_lowered(model: ExportedModel) -> LoweredModule:
    imported = model.imported
    if imported is None:
        raise UnsupportedModelError("The model holds no program.")
    outputs = tuple(
        OutputBinding(name=name, source="result", index=i)
        for i, name in enumerate(model.output_names)
    )
    entry = EntryPoint(
        function=imported.function,
        inputs=model.inputs,
        outputs=outputs,
        result_count=len(outputs),
    )
    return LoweredModule(
        model=model,
        dialect=imported.dialect,
        bytecode=imported.bytecode,
        entry_points=(entry,),
        initial_states={},
        coverage=Coverage(operators=()),
        notes=("the model came as MLIR; its operations are not listed",),
    )
