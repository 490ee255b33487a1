"""An ExportedProgram as a pure graph: constants inside, state as extra arguments and results.

torch.export functionalizes: a mutated buffer or input is an extra output of its graph. Here those
become what the caller carries: arguments are the user's inputs, then one per mutated buffer;
results are the user's outputs, then the mutated inputs, then the new values of the buffers.
Everything else that the program reads (parameters, buffers, lifted constants, tensors kept on
``self``) becomes a constant of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
    TensorArgument,
)

from edgectl.errors import UnsupportedModelError
from edgectl.records import ExportedModel
from edgectl_runner.contract import EntryPoint, OutputBinding, StateSpec, TensorSpec

__all__ = ["FunctionalGraph", "functional_graph", "spec_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionalGraph:
    """The graph, its signature at the boundary, and the first value of every state."""

    module: fx.GraphModule
    entry_point: EntryPoint
    initial_states: Mapping[str, np.ndarray]


def spec_of(name: str, value: Any) -> TensorSpec:
    """The spec of a (fake) tensor."""
    shape = tuple(size if isinstance(size, int) else None for size in value.shape)
    return TensorSpec(name=name, shape=shape, dtype=str(value.dtype).removeprefix("torch."))


def functional_graph(model: ExportedModel, program: Any, *, function: str) -> FunctionalGraph:
    """The pure graph of a decomposed ``program`` of ``model``.

    Raises:
        UnsupportedModelError: the program takes or returns something that is not a tensor, a
            Python number or ``None``.
    """
    builder = _Builder(model, program)
    builder.inputs()
    builder.nodes()
    return builder.finish(function)


class _Builder:
    def __init__(self, model: ExportedModel, program: Any) -> None:
        self.model = model
        self.program = program
        self.root = torch.nn.Module()
        self.graph = fx.Graph()
        self.copies: dict[fx.Node, fx.Node] = {}
        self.by_name: dict[str, fx.Node] = {n.name: n for n in program.graph.nodes}
        signature = program.graph_signature
        self.mutated_buffers = {
            s.target: s.arg.name
            for s in signature.output_specs
            if s.kind is OutputKind.BUFFER_MUTATION
        }
        self.mutated_inputs = {
            s.target: s.arg.name
            for s in signature.output_specs
            if s.kind is OutputKind.USER_INPUT_MUTATION
        }
        self.user_inputs: list[str] = []
        self.states: list[tuple[str, torch.Tensor]] = []

    def inputs(self) -> None:
        """Placeholders: the user's inputs first, then the states; constants in between vanish."""
        late: list[tuple[fx.Node, str, torch.Tensor]] = []
        for spec in self.program.graph_signature.input_specs:
            if not isinstance(spec.arg, TensorArgument):
                continue
            node = self.by_name[spec.arg.name]
            if spec.kind is InputKind.USER_INPUT:
                self.copies[node] = self._placeholder(node)
                self.user_inputs.append(node.name)
                continue
            value = self._value(spec)
            if spec.kind is InputKind.BUFFER and spec.target in self.mutated_buffers:
                late.append((node, spec.target, value))
            else:
                self._constant(node, str(spec.target), value)
        for node, target, value in late:
            self.copies[node] = self._placeholder(node)
            self.states.append((target, value))

    def nodes(self) -> None:
        """Every operation, unchanged."""
        for node in self.program.graph.nodes:
            if node.op == "get_attr":
                value = getattr(self.program.graph_module, str(node.target))
                if not isinstance(value, torch.Tensor):
                    raise UnsupportedModelError(
                        "The model branches on its data (torch.cond, while_loop or map).",
                        cause="TOSA and this project's runtime have no such control flow.",
                        next_step="Export the branch that runs on the device only.",
                    )
                self._constant(node, str(node.target), value)
            elif node.op == "call_function" and node not in self.copies:
                self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)

    def finish(self, function: str) -> FunctionalGraph:
        results: list[fx.Node] = []
        bindings: list[OutputBinding] = []
        names = list(self.model.output_names)
        for spec in self.program.graph_signature.output_specs:
            if spec.kind is OutputKind.USER_OUTPUT:
                name = names[len(bindings)]
                bindings.append(self._output(name, spec.arg, results))
        for target, source in self.mutated_inputs.items():
            node = self.by_name[source]
            position = self.user_inputs.index(target)
            name = f"{self.model.inputs[position].name}__mutated"
            bindings.append(self._result(name, node, results))
        states, initial = [], {}
        for index, (target, value) in enumerate(self.states):
            file = f"state/{index}.npy"
            node = self.by_name[self.mutated_buffers[target]]
            states.append(
                StateSpec(
                    spec=spec_of(target, value),
                    argument_index=len(self.user_inputs) + index,
                    result_index=len(results),
                    initial=file,
                )
            )
            results.append(self.copies[node])
            initial[file] = value.detach().cpu().numpy().copy()
        self.graph.output(tuple(results))
        module = fx.GraphModule(self.root, self.graph)
        entry = EntryPoint(
            function=function,
            inputs=self.model.inputs,
            outputs=tuple(bindings),
            states=tuple(states),
            result_count=len(results),
        )
        return FunctionalGraph(module=module, entry_point=entry, initial_states=initial)

    def _placeholder(self, node: fx.Node) -> fx.Node:
        copy = self.graph.placeholder(node.name)
        copy.meta = dict(node.meta)
        return copy

    def _constant(self, node: fx.Node, target: str, value: torch.Tensor) -> None:
        name = "c_" + "".join(c if c.isalnum() else "_" for c in target)
        while hasattr(self.root, name):
            name += "_"
        self.root.register_buffer(name, value.detach().cpu())
        copy = self.graph.get_attr(name)
        copy.meta = {**node.meta, "val": node.meta.get("val", value)}
        self.copies[node] = copy

    def _value(self, spec: Any) -> torch.Tensor:
        target = spec.target
        for holder in (self.program.state_dict, self.program.constants):
            if target in holder:
                value: torch.Tensor = holder[target]
                return value
        raise UnsupportedModelError(
            f"The program reads {target!r}, whose value is not in the file."
        )

    def _output(self, name: str, argument: Any, results: list[fx.Node]) -> OutputBinding:
        if isinstance(argument, ConstantArgument):
            return OutputBinding(name=name, source="literal", literal=argument.value)
        if not isinstance(argument, TensorArgument):
            raise UnsupportedModelError(
                f"Output {name!r} is neither a tensor nor a constant.",
                next_step="Return torch.tensor(...) instead of a value computed from a shape.",
            )
        node = self.by_name[argument.name]
        if node.name in self.user_inputs and node.op == "placeholder":
            position = self.user_inputs.index(node.name)
            spec = spec_of(name, node.meta["val"])
            return OutputBinding(name=name, source="input", index=position, spec=spec)
        return self._result(name, node, results)

    def _result(self, name: str, node: fx.Node, results: list[fx.Node]) -> OutputBinding:
        binding = OutputBinding(
            name=name, source="result", index=len(results), spec=spec_of(name, node.meta["val"])
        )
        results.append(self.copies[node])
        return binding
