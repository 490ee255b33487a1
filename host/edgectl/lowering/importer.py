"""A pure FX graph -> MLIR in the torch dialect -> TOSA (or another dialect), by torch-mlir.

torch-mlir's own driver prints the whole module, weights included, before every pipeline; the
same pipelines run here through `PassManager`, which takes well under a second for an image
network. Nodes carry ``module|operator|node`` as their location, which survives to IREE's
dispatches.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from edgectl.graph import quiet

__all__ = ["ConversionFailure", "bytecode", "import_graph", "module_path", "run_pipeline"]

TO_TORCH_BACKEND = "builtin.module(torchdynamo-export-to-torch-backend-pipeline)"
TO_TOSA = "builtin.module(torch-backend-to-tosa-backend-pipeline)"
TO_LINALG = "builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline)"
TO_STABLEHLO = "builtin.module(torch-backend-to-stablehlo-backend-pipeline)"


_BUFFER_DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionFailure(Exception):  # noqa: N818 - a result that travels as an exception
    """A pipeline refused the module: the operations it named, and all it said."""

    operators: tuple[tuple[str, str], ...]
    words: str
    reason: str = ""
    retry_as_torch: bool = False  # IREE's own torch pipeline knows what to do with them


def module_path(node: fx.Node) -> str:
    """Dotted path of the module that a node came from; empty for the model itself."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path, _ = list(stack.values())[-1]
    return re.sub(r"^L\['self'\]\.?", "", str(path))


def import_graph(module: fx.GraphModule, *, function: str) -> Any:
    """The graph as one function of a new MLIR module, in the torch dialect."""
    from torch_mlir import ir
    from torch_mlir.dialects import torch as torch_dialect
    from torch_mlir.extras.fx_importer import (
        FxImporter,
        GraphNodeImporter,
        create_mlir_tensor_type,
    )
    from torch_mlir.passmanager import PassManager

    context = ir.Context()
    torch_dialect.register_dialect(context)
    with context:  # a pipeline loads the dialects that it depends on
        for text in (TO_TOSA, TO_LINALG):
            PassManager.parse(text).run(ir.Module.parse("module {}").operation)
    for index, node in enumerate(module.graph.nodes):
        name = f"{module_path(node)}|{node.target}|{node.name}".replace('"', "'")
        node.meta["stack_trace"] = f'File "{name}", line {index},'

    kept: list[torch.Tensor] = []

    class NodeImporter(GraphNodeImporter):  # type: ignore[misc]
        """Reads a constant once; upstream imports it again at its second use and then asserts."""

        def _import_argument(self, loc: Any, arg: Any, expected_jit_type: Any = None) -> Any:
            if isinstance(arg, fx.Node) and arg.op == "get_attr" and (arg, 0) in self._v:
                with loc:
                    return self._convert_type(self.resolve_node_value(arg), expected_jit_type)
            return super()._import_argument(loc, arg, expected_jit_type)

        def _import_literal(self, py_value: Any, info: Any = None) -> Any:
            if not isinstance(py_value, torch.Tensor):
                return super()._import_literal(py_value, info)
            # Upstream knows a tensor again by its address, also when another lives there by now.
            kept.append(py_value)
            if py_value.dtype == torch.bool:
                value = self._import_literal(py_value.to(torch.uint8), info)
                return self._convert_type(value, torch.Tensor, torch.bool, py_value.size())
            if py_value.dtype in _BUFFER_DTYPES and py_value.numel() > 1:
                # Upstream makes a list of Python numbers first, to be safe from fake tensors; for
                # the weights of an image network that takes ten seconds. These are real.
                mapping = self._cc._py_attr_tracker.track(py_value)  # noqa: SLF001
                if mapping.is_empty:
                    mapping.value = ir.DenseResourceElementsAttr.get_from_buffer(
                        py_value.detach().contiguous().numpy(),
                        f"torch_tensor_{len(kept)}",
                        create_mlir_tensor_type(py_value),
                    )
            return super()._import_literal(py_value, info)

    importer = FxImporter(context=context, graph_node_importer_cls=NodeImporter)
    with quiet():
        importer.import_stateless_graph(module.graph, func_name=function)
    return importer.module


def run_pipeline(module: Any, *pipelines: str) -> None:
    """Runs pass pipelines over the module, in place.

    Raises:
        ConversionFailure: one of them refused; the diagnostics' operations and words.
    """
    from torch_mlir import ir
    from torch_mlir.passmanager import PassManager

    said: list[str] = []
    refused: list[tuple[str, str]] = []

    def note(diagnostic: Any) -> bool:
        text = str(diagnostic.message)
        said.append(f"{diagnostic.location}: {text}"[:2000])
        match = re.search(r"(?:operation|op) '([\w.]+)'|'([\w.]+)' op", text)
        where = re.search(r'"([^"|]*)\|([^"]*)"', str(diagnostic.location))
        if match:
            name = match.group(1) or match.group(2)
            spelled = re.search(r'name = "([\w.]+)"', text)  # an operator torch-mlir does not know
            if name == "torch.operator" and spelled:
                name = spelled.group(1)
            refused.append((where.group(1) if where else "", name))
        return True

    context = module.context
    handler = context.attach_diagnostic_handler(note)
    try:
        with context:
            for text in pipelines:
                PassManager.parse(text).run(module.operation)
    except (ir.MLIRError, RuntimeError) as error:
        for diagnostic in getattr(error, "error_diagnostics", []):
            note(diagnostic)
        raise ConversionFailure(
            operators=tuple(dict.fromkeys(refused)), words="\n".join(said) or str(error)[:4000]
        ) from error
    finally:
        handler.detach()


def bytecode(module: Any) -> bytes:
    """The module as IREE reads it (its text form would not parse there)."""
    file = io.BytesIO()
    module.operation.write_bytecode(file)
    return file.getvalue()
