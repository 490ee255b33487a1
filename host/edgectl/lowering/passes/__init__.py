"""Passes over TOSA between its making and the compiler: one layout, fewer operations, good shapes.

Every pass takes a torch-mlir module, changes it in place and keeps what it computes. Weights are
never printed: everything goes through the bindings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from edgectl.lowering.passes.bounds_to_clamp import bounds_to_clamp
from edgectl.lowering.passes.channels_last import channels_last
from edgectl.lowering.passes.fold_constants import fold_constants, unit_transposes
from edgectl.lowering.passes.pads_after_transposes import pads_after_transposes
from edgectl.lowering.passes.pads_into_convolutions import pads_into_convolutions
from edgectl.lowering.passes.pointwise_to_matmul import pointwise_to_matmul
from edgectl.lowering.passes.upstream import clean_up

__all__ = ["PASSES", "Pass", "run_passes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass; those with ``for_kernels`` false would only take work away from our kernels."""

    name: str
    run: Callable[[Any], None]
    for_kernels: bool = True


PASSES: tuple[Pass, ...] = (
    Pass(name="bounds-to-clamp", run=bounds_to_clamp),
    Pass(name="channels-last", run=channels_last),
    Pass(name="pads-after-transposes", run=pads_after_transposes),
    Pass(name="unit-transposes", run=unit_transposes),
    Pass(name="fold-constants", run=fold_constants),
    Pass(name="pads-into-convolutions", run=pads_into_convolutions),
    Pass(name="pointwise-to-matmul", run=pointwise_to_matmul, for_kernels=False),
    Pass(name="clean-up", run=clean_up),
)


def run_passes(module: Any, *, for_kernels: bool = False, without: Collection[str] = ()) -> None:
    """Runs the passes of ``PASSES`` in their order, in place.

    Args:
        module: a ``torch_mlir.ir.Module`` in TOSA, float or integer.
        for_kernels: our own kernels take the convolutions: leave those as they are.
        without: names of passes to leave out, to see what each one brings.
    """
    with module.context:
        for step in PASSES:
            if step.name not in without and (step.for_kernels or not for_kernels):
                step.run(module)
