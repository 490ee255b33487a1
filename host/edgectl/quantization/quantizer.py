"""`quantize`: an exported model and calibration data become a model with int8 pairs in it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgectl.errors import UnsupportedModelError, UsageError
from edgectl.graph import new_constant, quiet
from edgectl.quantization.accuracy import Agreement, compare_layers, compare_outputs
from edgectl.quantization.boundary import make_boundary_int8, quantize_array
from edgectl.quantization.calibrate import Sample, describe_node, observe
from edgectl.quantization.data import CalibrationData, calibration_data
from edgectl.quantization.demands import Metric, check_demands, measured, metric_of, outputs_of
from edgectl.quantization.equalize import equalize
from edgectl.quantization.fast_evaluation import for_evaluation
from edgectl.quantization.observers import RangeObserver
from edgectl.quantization.operators import macs_of
from edgectl.quantization.other_methods import rewrite_otherwise
from edgectl.quantization.parameters import ActivationParameters, activation_parameters
from edgectl.quantization.plan import Plan, make_plan
from edgectl.quantization.prepare import module_path, prepare
from edgectl.quantization.recipe import Quality, Recipe, recipe_of
from edgectl.quantization.refine import refine, round_to_nearest
from edgectl.quantization.rewrite import insert_pairs
from edgectl.records import ExampleCall, ExportedModel, QuantizedModel
from edgectl.sources.images import ImageOptions
from edgectl.sources.tensors import from_tensor, to_tensor
from edgectl_runner.contract import GoldenLimits

__all__ = ["Candidate", "Progress", "Workbench", "quantize"]

Progress = Callable[[str, int, int | None], None]
"""Called with (step, done, of how many or ``None``)."""

_REFINE_SAMPLES = 64  # held in memory together with their activations
_REPORT_SAMPLES = 4
_LEVELS = 256


def _silent(step: str, done: int, total: int | None) -> None:
    del step, done, total


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One quantized graph, and which nodes it left in float on purpose."""

    module: fx.GraphModule
    plan_names: tuple[str, ...]
    results: dict[str, str]
    excluded: tuple[str, ...]
    integer_macs: int
    macs: int

    @property
    def integer_share(self) -> float:
        """Share of multiply-accumulates that are integer, 0 to 1 (1 when there are none)."""
        return self.integer_macs / self.macs if self.macs else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounded:
    """int8 weights with their scales, and corrected biases, by layer node's name."""

    weights: dict[str, tuple[torch.Tensor, torch.Tensor]]
    biases: dict[str, torch.Tensor]


@dataclass(slots=True, kw_only=True)
class Workbench:
    """The prepared float graph with what calibration found; makes candidates from it."""

    module: fx.GraphModule
    recipe: Recipe
    samples: Sequence[Sample]
    observers: dict[str, RangeObserver]
    warnings: list[str] = field(default_factory=list)
    progress: Progress = _silent

    @classmethod
    def calibrate(
        cls, model: ExportedModel, recipe: Recipe, data: CalibrationData, progress: Progress
    ) -> Workbench:
        """Prepares the graph and watches it over all calibration data."""
        module = prepare(model.program)
        if recipe.equalize:
            equalize(module)
        # Any node may turn out to be an integer layer's input once a neighbour stays float, so
        # the ranges of all values that any plan can want are kept.
        plan = make_plan(module, recipe)
        values = {node: node for node in plan.quantized}
        values.update({v: v for layer in plan.layers.values() for v in layer.inputs})
        values.update({layer.result: layer.result for layer in plan.layers.values()})
        observers, warnings = observe(
            module, values, data, progress=lambda done: progress("calibrate", done, data.limit)
        )
        return cls(
            module=module,
            recipe=recipe,
            samples=list(islice(iter(data), _REFINE_SAMPLES)),
            observers={node.name: observer for node, observer in observers.items()},
            warnings=warnings,
            progress=progress,
        )

    def parameters(self, plan: Plan) -> dict[fx.Node, ActivationParameters]:
        """Scale and zero point of each group: the widest range that a deciding member needs."""
        ranges: dict[fx.Node, tuple[float, float]] = {}
        for node, root in plan.watched().items():
            observer = self.observers.get(node.name)
            if observer is None:
                continue
            low, high = observer.range(
                self.recipe.observer, percentile=self.recipe.percentile, levels=_LEVELS
            )
            old = ranges.get(root, (0.0, 0.0))
            ranges[root] = min(old[0], low), max(old[1], high)
        for node in plan.quantized:
            ranges.setdefault(plan.root(node), (0.0, 0.0))
        return {root: activation_parameters(*found) for root, found in ranges.items()}

    def rounded(self, plan: Plan) -> Rounded:
        """Weights and biases of every layer of ``plan``, refined as the recipe says."""
        parameters = self.parameters(plan)
        if self.recipe.adaptive_rounding or self.recipe.correct_bias:
            weights, biases = refine(
                self.module,
                plan,
                parameters,
                self.samples,
                adaptive_rounding=self.recipe.adaptive_rounding,
                correct_bias=self.recipe.correct_bias,
                progress=lambda done, total: self.progress("round weights", done, total),
            )
        else:
            weights, biases = round_to_nearest(self.module, plan, parameters), {}
        return Rounded(
            weights={node.name: found for node, found in weights.items()},
            biases={node.name: found for node, found in biases.items()},
        )

    def candidate(
        self, excluded: Collection[str] = (), *, rounded: Rounded | None = None
    ) -> Candidate:
        """A quantized copy of the graph with the nodes of these names in float.

        ``rounded`` may hold the weights of a larger plan; then nothing is refined again.
        """
        if rounded is None:
            rounded = self.rounded(make_plan(self.module, self.recipe, excluded=excluded))
        with quiet():
            module = copy.deepcopy(self.module)
        nodes = {n.name: n for n in module.graph.nodes}
        plan = make_plan(module, self.recipe, excluded=excluded)
        results = {layer.node.name: layer.result.name for layer in plan.layers.values()}
        names = tuple(results)
        integer = sum(macs_of(layer.node) for layer in plan.layers.values())
        for name, bias in rounded.biases.items():
            if name in results:
                node = nodes[name]
                new = new_constant(module, f"{name}_bias", bias, node)
                node.args = (*node.args[:2], new, *node.args[3:])
        weights = {nodes[name]: found for name, found in rounded.weights.items() if name in results}
        insert_pairs(module, plan, self.parameters(plan), weights)
        return Candidate(
            module=module,
            plan_names=names,
            results=results,
            excluded=tuple(excluded),
            integer_macs=integer,
            macs=sum(macs_of(node) for node in self.module.graph.nodes),
        )


def quantize(
    model: ExportedModel,
    recipe: str | Recipe = "static_wi8_ai8",
    calibration: str | Path | Iterable[Any] | CalibrationData | None = None,
    *,
    quality: Quality = "default",
    samples: int | None = None,
    seed: int = 0,
    images: ImageOptions | None = None,
    evaluation: str | Path | Iterable[Any] | CalibrationData | None = None,
    metric: Metric | str | None = None,
    max_drop: float | None = None,
    min_sqnr: float | None = None,
    require_int8: float | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> QuantizedModel:
    """Quantizes ``model`` as ``recipe`` says.

    Args:
        model: the float model; it stays as it is.
        recipe: a name of `edgectl.quantization.RECIPES`, ``int8``, or a `Recipe`.
        calibration: typical inputs (`calibration_data` says in which forms); static recipes
            need them.
        quality: ``best`` adds equalisation and adaptive rounding.
        samples: at most so many calibration samples.
        seed: of the choice of pictures.
        images: how pictures become tensors.
        evaluation: inputs to judge the result by; the calibration data when not given.
        metric: gets a function that runs the model (tensors in, flat list of tensors out) and
            returns a number in percent, higher is better; or where to find such a function, as
            ``file.py:function``.
        max_drop: at most so many percentage points below the float model (of ``metric``, or of
            top-1 agreement); the layers that cost most stay float until it holds.
        min_sqnr: at least so many dB between float and quantized outputs, by the same means.
        require_int8: the share (0 to 1) of multiply-accumulates that must be integer.
        progress: is told how far each step is.
        **changes: fields of `Recipe` to change, for example ``observer="minmax"``.

    Raises:
        UsageError: no calibration data, data that do not fit, or an unknown recipe.
        UnsupportedModelError: fewer integer MACs than ``require_int8``, or no way to keep to
            ``max_drop`` or ``min_sqnr``.
    """
    chosen = recipe_of(recipe, quality=quality, **changes)
    tell = progress or _silent
    if _holds_pairs(model.program):
        raise UsageError(
            f"{model.name} is quantized already: it holds quantize and dequantize operators.",
            next_step="Leave out --quantize; it becomes integer as it is.",
        )
    measure = None if metric is None else metric_of(metric)
    if chosen.method != "static":
        if chosen.quantized_io:
            raise UsageError(
                f"{chosen.name} has no int8 inputs and outputs.",
                cause="Their ranges would have to be fixed by calibration data.",
                next_step="Use --quantize int8 with --quantized-io.",
            )
        source = evaluation if evaluation is not None else calibration
        judged = (
            None
            if source is None
            else calibration_data(source, model.inputs, samples=samples, seed=seed, images=images)
        )
        result = _without_calibration(model, chosen, judged, measure)
        check_demands(
            result.report, max_drop=max_drop, min_sqnr=min_sqnr, require_int8=require_int8
        )
        return result
    if calibration is None:
        raise UsageError(
            f"The recipe {chosen.name} needs calibration data, and there are none.",
            cause="The ranges of activations are measured on typical inputs.",
            next_step="Pass --calibration FOLDER, FILE.npz or FILE.py:FUNCTION "
            "(32 to 256 typical inputs).",
        )
    data = calibration_data(calibration, model.inputs, samples=samples, seed=seed, images=images)
    bench = Workbench.calibrate(model, chosen, data, tell)
    judged = (
        data
        if evaluation is None
        else calibration_data(evaluation, model.inputs, images=images, seed=seed)
    )
    costs: list[dict[str, Any]] = []
    if max_drop is not None or min_sqnr is not None:
        from edgectl.quantization.budget import Budget, search

        candidate, costs = search(
            bench,
            judged,
            Budget(max_drop=max_drop, min_sqnr=min_sqnr, metric=measure),
        )
    else:
        candidate = bench.candidate()
    if require_int8 is not None and candidate.integer_share < require_int8:
        raise _too_little(bench, candidate, require_int8)
    agreement = evaluate(bench.module, candidate.module, islice(iter(judged), samples))
    report = _report(bench, candidate, agreement, data, costs)
    if measure is not None:
        report["metric"] = measured(measure, bench.module, candidate.module)
    return _assemble(model, chosen, candidate, report)


def _without_calibration(
    model: ExportedModel, recipe: Recipe, judged: CalibrationData | None, measure: Metric | None
) -> QuantizedModel:
    """``judged``: the inputs to compare on; the model's example calls where there are none."""
    module, report = rewrite_otherwise(model.program, recipe)
    if judged is None:
        exact = [[to_tensor(np.asarray(o)) for o in call.outputs] for call in model.calls]
        got = [outputs_of(module, [to_tensor(a) for a in call.inputs]) for call in model.calls]
        report["against_float"] = compare_outputs(exact, got).to_document()
    else:
        report["calibration"] = f"none; judged by {judged.description}"
        report["against_float"] = evaluate(
            prepare(model.program), module, iter(judged)
        ).to_document()
    if measure is not None:
        report["metric"] = measured(measure, prepare(model.program), module)
    candidate = Candidate(
        module=module,
        plan_names=(),
        results={},
        excluded=(),
        integer_macs=report["integer_macs"],
        macs=report["macs"],
    )
    return _assemble(model, recipe, candidate, report)


def _holds_pairs(program: ExportedProgram) -> bool:
    return any("quantized_decomposed" in str(node.target) for node in program.graph.nodes)


def evaluate(exact: fx.GraphModule, got: fx.GraphModule, samples: Iterable[Sample]) -> Agreement:
    """Runs both graphs over ``samples``."""
    kept, fast = list(samples), for_evaluation(got)
    return compare_outputs(
        (outputs_of(exact, s) for s in kept), (outputs_of(fast, s) for s in kept)
    )


def _too_little(bench: Workbench, candidate: Candidate, required: float) -> UnsupportedModelError:
    floats = [
        f"{describe_node(n)}: {macs_of(n):,} MACs"
        for n in bench.module.graph.nodes
        if macs_of(n) and n.name not in candidate.plan_names
    ]
    return UnsupportedModelError(
        f"Only {100 * candidate.integer_share:.1f} % of the multiply-accumulates can be int8; "
        f"{100 * required:.1f} % are required.",
        cause="These stay float: " + "; ".join(floats[:8]),
        next_step="Lower the share that --require-int8 asks for, or change these layers.",
    )


def _report(
    bench: Workbench,
    candidate: Candidate,
    agreement: Agreement,
    data: CalibrationData,
    costs: list[dict[str, Any]],
) -> dict[str, Any]:
    tallies = compare_layers(
        bench.module,
        candidate.module,
        list(candidate.results.values()),
        bench.samples[:_REPORT_SAMPLES],
    )
    layers = []
    for node in bench.module.graph.nodes:
        if node.op != "call_function":
            continue
        integer = node.name in candidate.plan_names
        if not integer and not macs_of(node):
            continue
        entry: dict[str, Any] = {
            "node": node.name,
            "module": module_path(node),
            "operator": str(node.target),
            "macs": macs_of(node),
            "integer": integer,
        }
        if integer:
            entry |= tallies[candidate.results[node.name]].to_document()
        elif node.name in candidate.excluded:
            entry["reason"] = "kept in float by the accuracy budget"
        layers.append(entry)
    return {
        "calibration": data.description,
        "warnings": bench.warnings,
        "integer_macs": candidate.integer_macs,
        "macs": candidate.macs,
        "integer_macs_share": candidate.integer_share,
        "against_float": agreement.to_document(),
        "layers": layers,
        "kept_float": list(candidate.excluded),
        "costs": costs,
    }


def _assemble(
    model: ExportedModel, recipe: Recipe, candidate: Candidate, report: dict[str, Any]
) -> QuantizedModel:
    """Exports the quantized graph; its golden outputs are those of the quantized program."""
    arguments, keywords = model.program.example_inputs or ((), {})
    calls, inputs = model.calls, model.inputs
    if recipe.quantized_io:
        names = [n.name for n in candidate.module.graph.nodes if n.op == "placeholder"]
        border = make_boundary_int8(candidate.module)
        report = {**report, "border": border}
        if keywords:
            raise UnsupportedModelError("--quantized-io needs a model with positional inputs.")

        def stored(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            return [
                quantize_array(v, border[n]) if n in border else v
                for n, v in zip(names, values, strict=True)
            ]

        arguments = tuple(stored(arguments))
        calls = tuple(
            dataclasses.replace(
                call,
                inputs=tuple(from_tensor(t) for t in stored([to_tensor(a) for a in call.inputs])),
            )
            for call in calls
        )
        inputs = tuple(
            dataclasses.replace(spec, dtype="int8") if name in border else spec
            for name, spec in zip(names, inputs, strict=True)
        )
    program = export_again(candidate.module, arguments, keywords, dynamic=_is_dynamic(model))
    with quiet():
        runnable = program.module(check_guards=False)
    quantized = dataclasses.replace(
        model,
        program=program,
        inputs=inputs,
        calls=tuple(_answered(runnable, call) for call in calls),
        notes=(*model.notes, *report["warnings"]),
    )
    return QuantizedModel(
        model=quantized,
        float_model=model,
        recipe_name=recipe.name,
        recipe=recipe.to_document(),
        report=report,
        limits=GoldenLimits(max_relative_error=None, min_sqnr_db=40.0),
    )


def _is_dynamic(model: ExportedModel) -> bool:
    return any(None in spec.shape for spec in model.inputs)


def export_again(
    module: fx.GraphModule, arguments: Any, keywords: Any, *, dynamic: bool = False
) -> ExportedProgram:
    """The graph module as an exported program; ``dynamic`` lets every dimension vary that can."""
    shapes = None
    if dynamic:
        shapes = pytree.tree_map_only(
            torch.Tensor, lambda t: dict.fromkeys(range(t.dim()), torch.export.Dim.AUTO), arguments
        )
    with quiet():
        return torch.export.export(module, arguments, keywords, dynamic_shapes=shapes, strict=False)


def _answered(module: Any, call: ExampleCall) -> ExampleCall:
    with torch.no_grad():
        result = module(*(to_tensor(array) for array in call.inputs))
    leaves = pytree.tree_leaves(result, is_leaf=lambda x: x is None)
    outputs = tuple(
        from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
    )
    return ExampleCall(inputs=call.inputs, outputs=outputs)
