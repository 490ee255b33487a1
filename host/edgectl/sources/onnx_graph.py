"""An ONNX graph as an ``nn.Module``, one submodule per node, so that layers keep their names.

Whatever follows from weights and shapes alone is computed once, with example inputs, and becomes
a constant; ``If`` on such a constant becomes the branch that it takes. What is left is tensor
code that torch.export can trace.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from torch import nn

from edgectl.errors import UnsupportedModelError
from edgectl.sources import onnx_layers
from edgectl.sources.onnx_operators import OPERATORS, Operation, Static
from edgectl.sources.onnx_wire import Graph, Model, Node

__all__ = ["OnnxModule"]

_FEW = 4096  # numbers worth keeping as Python values: shapes, axes, indices
del onnx_layers  # imported for what it registers


class _Layer(nn.Module):
    """One node with its static inputs filled in."""

    def __init__(self, operation: Operation, places: list[Any]):
        super().__init__()
        self.operation = operation
        self.places = places

    def forward(self, *values: Any) -> Any:
        """Applies the operator; ``values`` are its inputs that are not static."""
        waiting = iter(values)
        inputs = [next(waiting) if isinstance(p, str) else self._static(p) for p in self.places]
        return OPERATORS[self.operation.kind](self.operation, *inputs)

    def _static(self, place: Any) -> Any:
        if isinstance(place, _Kept):
            return Static(getattr(self, place.buffer), place.items)
        return place


class _Kept:
    """A static input: the buffer that holds it, and its numbers if they are few."""

    def __init__(self, buffer: str, items: tuple[Any, ...] | None):
        self.buffer = buffer
        self.items = items


class OnnxModule(nn.Module):
    """Takes the graph's inputs by position and returns its outputs as a dict by name."""

    def __init__(self, model: Model, examples: list[torch.Tensor]):
        super().__init__()
        self.opset = model.opset
        self.layers = nn.ModuleDict()
        self.steps: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
        graph = model.graph
        self.input_names = [port.name for port in graph.inputs if port.name not in graph.weights]
        self.output_names = [port.name for port in graph.outputs]
        known: dict[str, Any] = dict(zip(self.input_names, examples, strict=True))
        with torch.no_grad():
            self._take(graph, known)
        self.fixed: dict[str, str] = {}
        for name in self.output_names:
            if isinstance(known.get(name), Static):
                buffer = f"output_{len(self.fixed)}"
                self.register_buffer(buffer, known[name].value.clone())
                self.fixed[name] = buffer
        self._prune()

    def forward(self, *inputs: torch.Tensor) -> dict[str, Any]:
        """Computes the graph."""
        values: dict[str, Any] = dict(zip(self.input_names, inputs, strict=True))
        for layer, reads, writes in self.steps:
            result = self.layers[layer](*[values[name] for name in reads])
            results = result if isinstance(result, tuple) else (result,)
            values.update(zip(writes, results, strict=False))
        return {
            name: getattr(self, self.fixed[name]) if name in self.fixed else values[name]
            for name in self.output_names
        }

    def _take(self, graph: Graph, known: dict[str, Any]) -> None:
        """Runs the graph on ``known`` and keeps what is not static as steps."""
        for name, array in graph.weights.items():
            known[name] = _static(torch.from_numpy(array))
        for node in graph.nodes:
            self._take_node(node, known)

    def _take_node(self, node: Node, known: dict[str, Any]) -> None:
        name = node.name or (node.outputs[0] if node.outputs else node.operator)
        if node.operator == "If":
            self._take_branch(node, name, known)
            return
        inputs = [known[item] if item else None for item in node.inputs]
        if node.operator == "Constant":
            known[node.outputs[0]] = _static(_constant(node, name))
            return
        if node.operator in ("Shape", "Size"):
            known[node.outputs[0]] = _static(_shape(node, inputs[0]))
            return
        if node.domain not in ("", "ai.onnx") or node.operator not in OPERATORS:
            raise UnsupportedModelError(
                f"The ONNX operator {node.domain + '.' if node.domain else ''}{node.operator} "
                f"(node {name!r}) is not known.",
                next_step="Export the model from PyTorch with torch.export.save instead.",
            )
        outputs = len([item for item in node.outputs if item])
        operation = Operation(name, node.operator, node.attributes, self.opset, outputs)
        try:
            result = OPERATORS[node.operator](operation, *inputs)
        except (RuntimeError, TypeError, IndexError, KeyError, ValueError) as error:
            raise UnsupportedModelError(
                f"ONNX node {name!r} ({node.operator}) cannot be computed on these inputs: "
                f"{(str(error).strip().splitlines() or [''])[0][:200]}",
                next_step="Check shapes and dtypes of --input or --input-spec.",
            ) from error
        results = result if isinstance(result, tuple) else (result,)
        if all(item is None or isinstance(item, Static) for item in inputs):
            for output, value in zip(node.outputs, results, strict=False):
                known[output] = _static(value)
            return
        known.update(zip(node.outputs, results, strict=False))
        self._add(operation, node, inputs)

    def _add(self, operation: Operation, node: Node, inputs: list[Any]) -> None:
        key = re.sub(r"\W+", "_", operation.name).strip("_") or "node"
        while key in self.layers or hasattr(nn.ModuleDict, key):
            key += "_"
        places: list[Any] = []
        layer = _Layer(operation, places)
        for name, value in zip(node.inputs, inputs, strict=True):
            if isinstance(value, Static):
                buffer = f"constant_{len(places)}"
                layer.register_buffer(buffer, value.value.clone())
                places.append(_Kept(buffer, value.items))
            else:
                places.append(name or None)
        self.layers[key] = layer
        reads = tuple(place for place in places if isinstance(place, str))
        self.steps.append((key, reads, node.outputs))

    def _take_branch(self, node: Node, name: str, known: dict[str, Any]) -> None:
        condition = known[node.inputs[0]]
        if not isinstance(condition, Static):
            raise UnsupportedModelError(
                f"ONNX node {name!r} (If) decides by the data of an input. A compiled model has "
                "one path for every input.",
                next_step="Export the model without that branch.",
            )
        taken = bool(condition.value.reshape(()).item())
        branch: Graph = node.attributes["then_branch" if taken else "else_branch"]
        # A branch sees the names around it; its own may repeat those of the other branch.
        inner = dict(known)
        self._take(branch, inner)
        for output, port in zip(node.outputs, branch.outputs, strict=True):
            known[output] = inner[port.name]
            if not isinstance(inner[port.name], Static):
                operation = Operation(f"{name}_{output}", "Identity", {}, self.opset, 1)
                self._add(operation, _identity(port.name, output), [inner[port.name]])

    def _prune(self) -> None:
        needed = {name for name in self.output_names if name not in self.fixed}
        kept = []
        for step in reversed(self.steps):
            layer, reads, writes = step
            if needed.isdisjoint(writes):
                del self.layers[layer]
                continue
            needed.update(reads)
            kept.append(step)
        self.steps = kept[::-1]


def _identity(source: str, target: str) -> Node:
    return Node(
        name=target,
        operator="Identity",
        domain="",
        inputs=(source,),
        outputs=(target,),
        attributes={},
    )


def _static(value: torch.Tensor) -> Static:
    few = value.numel() <= _FEW
    return Static(value, tuple(value.reshape(-1).tolist()) if few else None)


def _constant(node: Node, name: str) -> torch.Tensor:
    for key, value in node.attributes.items():
        if isinstance(value, np.ndarray):
            return torch.from_numpy(value)
        if key in ("value_int", "value_ints"):
            return torch.tensor(value, dtype=torch.int64)
        if key in ("value_float", "value_floats"):
            return torch.tensor(value, dtype=torch.float32)
    raise UnsupportedModelError(f"ONNX node {name!r} (Constant) holds no tensor.")


def _shape(node: Node, value: Any) -> torch.Tensor:
    tensor = value.value if isinstance(value, Static) else value
    if node.operator == "Size":
        return torch.tensor(tensor.numel(), dtype=torch.int64)
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return torch.tensor(list(tensor.shape)[start:end], dtype=torch.int64)
