"""From the torch dialect to what IREE is handed, in the order in which ways are tried.

``tosa``    everything in TOSA;
``linalg``  the whole module in linalg, by torch-mlir, which names what it cannot lower;
``torch``   the whole module in the torch dialect: for sorting, scans and scatters, whose
            intermediate dialect (``tm_tensor``) only IREE's own torch pipeline goes around;
``stablehlo``  when it is asked for.
"""

from __future__ import annotations

import re
from typing import Any

from torch import fx

from edgectl.lowering.importer import (
    TO_LINALG,
    TO_STABLEHLO,
    TO_TORCH_BACKEND,
    TO_TOSA,
    ConversionFailure,
    import_graph,
    run_pipeline,
)
from edgectl.lowering.narrowing import narrow_types
from edgectl.records import Dialect

__all__ = ["convert"]

_TIDY = "builtin.module(canonicalize,cse)"


def convert(module: fx.GraphModule, dialect: Dialect, *, function: str, optimize: bool) -> Any:
    """Imports the graph anew and lowers it to ``dialect``; the MLIR module.

    Raises:
        ConversionFailure: an operation has no way into the dialect.
    """
    imported = import_graph(module, function=function)
    if _integer_operators(module):
        from edgectl.lowering.integer.expand import expand_operators

        expand_operators(imported)
    run_pipeline(imported, TO_TORCH_BACKEND)
    if dialect is Dialect.TOSA:
        run_pipeline(imported, TO_TOSA)
        narrow_types(imported)
        run_pipeline(imported, _TIDY)
        if _integer_operators(module):
            from edgectl.lowering.integer.tosa_constants import constants_to_tosa

            constants_to_tosa(imported)
        if optimize:
            from edgectl.lowering.passes import run_passes

            run_passes(imported)
        if _integer_operators(module):
            from edgectl.lowering.integer.fast_rounding import round_fast

            round_fast(imported)
    elif dialect is Dialect.LINALG:
        run_pipeline(imported, TO_LINALG)
        _without_tensor_dialect(imported)
    elif dialect is Dialect.STABLEHLO:
        run_pipeline(imported, TO_STABLEHLO)
    return imported


def _without_tensor_dialect(module: Any) -> None:
    text = module.operation.get_asm(large_elements_limit=1, large_resource_limit=1)
    found = sorted(set(re.findall(r"tm_tensor\.\w+", text)))
    if found:
        raise ConversionFailure(
            operators=tuple(("", name) for name in found),
            words="IREE does not take this dialect",
            retry_as_torch=True,
        )


def _integer_operators(module: fx.GraphModule) -> bool:
    return any(getattr(n.target, "namespace", "") == "edgectl" for n in module.graph.nodes)
