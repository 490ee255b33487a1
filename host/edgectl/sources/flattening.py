"""A program whose call is flat: tensors in, by position; a tensor or a tuple of leaves out.

Later stages think in flat lists, and a flat signature is plain data: nested ones may name
classes. Python values among the inputs (``flag=True``) are constants of the graph already, so
their placeholders go.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import ConstantArgument, ExportGraphSignature, InputKind
from torch.fx.graph import CodeGen
from torch.utils import _pytree as pytree

__all__ = ["flattened"]


def flattened(
    program: ExportedProgram, names: tuple[str, ...], example: tuple[torch.Tensor, ...]
) -> ExportedProgram:
    """The same graph and tensors under a flat signature; ``names`` and ``example`` are those of
    its tensor inputs, in order.
    """
    graph = program.graph
    nodes = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    kept = []
    for spec in program.graph_signature.input_specs:
        constant = spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, ConstantArgument)
        if constant and not nodes[spec.arg.name].users:
            graph.erase_node(nodes[spec.arg.name])
        else:
            kept.append(spec)
    signature = ExportGraphSignature(
        input_specs=kept, output_specs=program.graph_signature.output_specs
    )
    user_inputs = sum(spec.kind is InputKind.USER_INPUT for spec in kept)
    out_spec = program.call_spec.out_spec
    call = ModuleCallSignature(
        inputs=[],
        outputs=[],
        in_spec=pytree.tree_structure((tuple(range(user_inputs)), {})),
        out_spec=out_spec
        if out_spec.is_leaf()
        else pytree.tree_structure(tuple(range(out_spec.num_leaves))),
        forward_arg_names=_identifiers(names) if len(names) == user_inputs else None,
    )
    graph.set_codegen(CodeGen())
    plain = torch.fx.GraphModule(program.graph_module, graph)
    return ExportedProgram(
        root=plain,
        graph=graph,
        graph_signature=signature,
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=[
            ModuleCallEntry("", call),
            *(entry for entry in program.module_call_graph if entry.fqn and not entry.signature),
        ],
        example_inputs=(example, {}),
        constants=program.constants,
        verifiers=_verifiers(program),
    )


def _verifiers(program: ExportedProgram) -> list[Any]:
    return list(program.verifiers)


def _identifiers(names: tuple[str, ...]) -> list[str]:
    """Dotted names as parameters of a function, each different."""
    made: list[str] = []
    for name in names:
        base = re.sub(r"\W", "_", name)
        base = base if base.isidentifier() else f"input_{base}"
        unique, count = base, 1
        while unique in made:
            unique, count = f"{base}_{count}", count + 1
        made.append(unique)
    return made
