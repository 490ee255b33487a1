"""The lowering stage: decompose, make pure, fold, legalise, convert, and account for everything."""

from __future__ import annotations

import copy
import dataclasses

import torch
from torch import fx
from torch.utils import _pytree as pytree

from edgectl.errors import UnsupportedModelError
from edgectl.graph import quiet
from edgectl.lowering.conversion import convert
from edgectl.lowering.coverage import coverage_of
from edgectl.lowering.decompositions import decomposition_table
from edgectl.lowering.folding import fold_constants
from edgectl.lowering.functional import FunctionalGraph, functional_graph
from edgectl.lowering.importer import ConversionFailure, bytecode
from edgectl.lowering.legalisation import legalise
from edgectl.records import Coverage, Dialect, ExampleCall, ExportedModel, LoweredModule
from edgectl.settings import load_settings
from edgectl_runner.contract import EntryPoint, OutputBinding

__all__ = ["explain", "lower"]

_FUNCTION = "main"


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
        dialect: ``tosa``, ``linalg``, ``stablehlo``, ``torch``, or ``auto`` (TOSA first, then the
            torch dialect for what TOSA cannot say).
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
    wanted = _wanted(dialect, strict_tosa=strict_tosa)
    refused: dict[tuple[str, str], str] = {}
    for attempt in wanted:
        try:
            _refuse_by_rule(graph.module, attempt)
            module = convert(graph.module, attempt, function=_FUNCTION, optimize=optimize)
        except ConversionFailure as failure:
            refused.update(dict.fromkeys(failure.operators, f"no lowering to {attempt}"))
            if attempt is wanted[-1]:
                raise _unsupported(failure, attempt, strict_tosa=strict_tosa) from failure
            continue
        coverage = coverage_of(graph.module, attempt, refused)
        return LoweredModule(
            model=model,
            dialect=attempt,
            bytecode=bytecode(module),
            entry_points=(graph.entry_point,),
            initial_states=graph.initial_states,
            coverage=coverage,
            notes=_fallback_notes(attempt, refused),
        )
    raise UnsupportedModelError(f"There is no dialect {dialect!r}.")


def explain(model: ExportedModel) -> Coverage:
    """What would become of every operation, without compiling anything."""
    if model.imported is not None:
        return Coverage(operators=())
    _, graph = prepare(model)
    refused: dict[tuple[str, str], str] = {}
    try:
        _refuse_by_rule(graph.module, Dialect.TOSA)
        convert(graph.module, Dialect.TOSA, function=_FUNCTION, optimize=False)
    except ConversionFailure as failure:
        refused = dict.fromkeys(failure.operators, "no lowering to tosa")
        return coverage_of(graph.module, Dialect.TORCH, refused)
    return coverage_of(graph.module, Dialect.TOSA, {})


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
        return [Dialect.TOSA] if strict_tosa else [Dialect.TOSA, Dialect.TORCH, Dialect.LINALG]
    return [Dialect(dialect)]


def _refuse_by_rule(module: fx.GraphModule, dialect: Dialect) -> None:
    """What torch-mlir would lower without a word, and wrongly."""
    if dialect is not Dialect.TOSA:
        return
    for node in module.graph.nodes:
        leaves = pytree.tree_leaves(node.meta.get("val"))
        kinds = {v.dtype for v in leaves if isinstance(v, torch.Tensor)}
        if torch.uint8 in kinds and not (node.op == "placeholder" and _only_widened(node)):
            raise ConversionFailure(
                operators=(("", f"torch.{node.target}"),),
                words="TOSA has no unsigned arithmetic: a uint8 value is computed with",
            )


def _only_widened(node: fx.Node) -> bool:
    return all(str(user.target) == "aten._to_copy.default" for user in node.users)


def _unsupported(
    failure: ConversionFailure, dialect: Dialect, *, strict_tosa: bool
) -> UnsupportedModelError:
    log = load_settings().log_dir / "lowering.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(failure.words)
    places = [
        f"{operator.removeprefix('torch.')} in {path or 'the model itself'}"
        for path, operator in failure.operators
    ]
    return UnsupportedModelError(
        f"The model has operations that cannot be lowered to {dialect}: "
        f"{'; '.join(places[:5]) or 'see the log'}.",
        cause="torch-mlir has no lowering for them in this form."
        if not strict_tosa
        else "TOSA cannot say them, and --strict-tosa forbids another dialect.",
        next_step=f"Replace them in the model, or try --dialect auto; details are in {log}.",
    )


def _fallback_notes(dialect: Dialect, refused: dict[tuple[str, str], str]) -> tuple[str, ...]:
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
