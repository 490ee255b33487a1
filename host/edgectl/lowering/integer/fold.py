"""dequantize -> operator -> quantize becomes one integer operator.

Walks the graph in order; each operator whose inputs are dequantized int8 values is replaced by
what its kind says (`edgectl.quantization.operators.Kind`). The zero point of an input goes into
the bias at compile time (weights are constant and symmetric), so that a product stays a plain
int8 x int8 -> int32; a padded border then is the zero point, written by an explicit pad. What has
no integer form stays float between the pair, and the coverage says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from edgectl.graph import quiet
from edgectl.lowering.integer.builder import Builder
from edgectl.lowering.integer.combine import fold_combine, fold_join
from edgectl.lowering.integer.convolution import fold_convolution, fold_transposed
from edgectl.lowering.integer.layout import channels_last, merge_equal
from edgectl.lowering.integer.moves import fold_average, fold_gather, fold_move, fold_table
from edgectl.lowering.integer.pairs import (
    DEQUANTIZE,
    DEQUANTIZE_CHANNEL,
    QUANTIZE,
    Int8Weight,
    evaluate_constants,
    int8_of,
    normalise_unsigned,
    quantizer_of,
    weight_of,
)
from edgectl.lowering.integer.products import fold_linear, fold_matmul
from edgectl.quantization.operators import (
    CONVOLUTIONS,
    LINEAR,
    MATMUL,
    TRANSPOSED,
    Kind,
    kind_of,
    macs_of,
)
from edgectl.records import ExampleCall, ExportedModel
from edgectl.sources.tensors import from_tensor, to_tensor

__all__ = ["fold_graph", "fold_model", "fold_program", "holds_pairs"]

edge = torch.ops.edgectl
aten = torch.ops.aten


def holds_pairs(program: ExportedProgram) -> bool:
    """True when the program holds quantize/dequantize operators."""
    known = QUANTIZE | DEQUANTIZE | DEQUANTIZE_CHANNEL
    return any(n.target in known for n in program.graph.nodes)


def fold_program(program: ExportedProgram, *, exact_rounding: bool = False) -> ExportedProgram:
    """The same program with integer operators (namespace ``edgectl``) where it can have them."""
    with quiet():
        if any(_mutates(node) for node in program.graph.nodes):
            program = program.run_decompositions({})
        module: Any = program.module(check_guards=False)
        fold_graph(module, exact_rounding=exact_rounding)
        arguments, keywords = program.example_inputs or ((), {})
        return torch.export.export(module, arguments, keywords, strict=False)


def fold_model(model: ExportedModel, *, exact_rounding: bool = False) -> ExportedModel:
    """A quantized model with integer operators; its golden outputs are the integer program's.

    Fake quantization and integers round a few sums differently, and in a deep network those few
    become many. What the device must reproduce are the integers, so they are what it is
    compared with, and a fault of the compiler cannot hide in rounding.
    """
    program = fold_program(model.program, exact_rounding=exact_rounding)
    with quiet():
        runnable = program.module(check_guards=False)
    return dataclasses.replace(
        model, program=program, calls=tuple(_answered(runnable, call) for call in model.calls)
    )


def _answered(module: Any, call: ExampleCall) -> ExampleCall:
    with torch.no_grad():
        result = module(*(to_tensor(array) for array in call.inputs))
    leaves = pytree.tree_leaves(result, is_leaf=lambda x: x is None)
    outputs = tuple(
        from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
    )
    return ExampleCall(inputs=call.inputs, outputs=outputs)


def _mutates(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return bool(schema is not None and schema.is_mutable)


def fold_graph(module: fx.GraphModule, *, exact_rounding: bool = False) -> None:
    """Folds in place. Each new node carries ``meta["custom"]`` with its layer's name and MACs."""
    _know_values(module)
    normalise_unsigned(module)
    evaluate_constants(module)
    builder = Builder(module, exact_rounding=exact_rounding)
    for node in list(module.graph.nodes):
        kind = kind_of(node)
        fold = None if kind is None else _fold_for(node, kind)
        if fold is None:
            continue
        builder.begin(node, macs=macs_of(node))
        fold(builder, node)
    module.graph.eliminate_dead_code()
    _boundaries(builder)
    channels_last(module)
    merge_equal(module)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()


def _fold_for(node: fx.Node, kind: Kind) -> Callable[[Builder, fx.Node], bool] | None:
    if kind is Kind.PRODUCT:
        for targets, fold in (
            (CONVOLUTIONS, fold_convolution),
            (TRANSPOSED, fold_transposed),
            (LINEAR, fold_linear),
            (MATMUL, fold_matmul),
        ):
            if node.target in targets:
                return fold
    return {
        Kind.COMBINE: fold_combine,
        Kind.JOIN: fold_join,
        Kind.AVERAGE: fold_average,
        Kind.TABLE: fold_table,
        Kind.MOVE: fold_move,
        Kind.GATHER: fold_gather,
    }.get(kind)


def _know_values(module: fx.GraphModule) -> None:
    """Every node gets ``meta["val"]``; constants added after export have none."""
    for node in module.graph.nodes:
        if node.op == "get_attr" and not isinstance(node.meta.get("val"), torch.Tensor):
            value: Any = module
            for part in str(node.target).split("."):
                value = getattr(value, part)
            node.meta["val"] = value.detach() if isinstance(value, torch.Tensor) else None


def _float_weight(builder: Builder, weight: Int8Weight) -> fx.Node:
    """A weight that is stored as int8 and used as float32."""
    shape = [1] * weight.values.dim()
    if weight.axis is not None:
        shape[weight.axis] = -1
    stored = builder.constant(weight.name, weight.values)
    real = builder.call(aten.to.dtype, stored, torch.float32)
    scales = builder.constant(f"{weight.name}_scale", weight.scales.reshape(shape))
    return builder.call(aten.mul.Tensor, real, scales)


def _boundaries(builder: Builder) -> None:
    """What is left of the pairs: where float meets int8."""
    module = builder.module
    for node in list(module.graph.nodes):
        if node.target in QUANTIZE:
            found = quantizer_of(module, node)
            if found is None:
                continue
            builder.begin(node)
            new = builder.call(
                edge.quantize.default,
                node.args[0],
                found.scale,
                found.zero_point,
                found.minimum,
                found.maximum,
            )
        elif node.target in DEQUANTIZE_CHANNEL:
            weight = weight_of(module, node)
            if weight is None or weight.axis is None:
                continue
            builder.begin(node)
            new = _float_weight(builder, weight)
        elif node.target in DEQUANTIZE:
            value = int8_of(module, node)
            if value is None:
                continue
            builder.begin(node)
            new = builder.call(edge.dequantize.default, value.node, value.scale, value.zero_point)
        else:
            continue
        node.replace_all_uses_with(new)
        module.graph.erase_node(node)
