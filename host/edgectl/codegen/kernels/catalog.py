"""The kernels there are, for which cores, and how each wants its weights packed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgectl.codegen.kernels.blob import Layout
from edgectl.codegen.kernels.shapes import Convolution
from edgectl_toolchains import Target

__all__ = ["KERNELS", "Kernel", "choose"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One exported C function and the convolutions that it computes."""

    name: str
    source: str
    element: str
    depthwise: bool
    layout: Layout
    needs_dotprod: bool = False
    needs_fp16: bool = False
    without_dotprod: bool = False
    max_taps: int = 1 << 30
    least_macs: int = 20_000

    @property
    def symbol(self) -> str:
        """The C function's name."""
        return f"edgectl_{self.name}"

    def runs_on(self, target: Target) -> bool:
        """Whether the core has the instructions."""
        if self.needs_dotprod and not target.has_dotprod:
            return False
        if self.without_dotprod and target.has_dotprod:
            return False
        return not self.needs_fp16 or target.has_fp16

    def refusal(self, conv: Convolution) -> str:
        """Why this convolution is not for this kernel; empty when it is."""
        geometry = conv.geometry
        if geometry.taps > self.max_taps:
            return f"{geometry.k_h}x{geometry.k_w} is larger than the kernel's pointer table"
        if conv.element == "i8" and bool((conv.weights == np.int8(-128)).any()):
            return "a weight of -128 would overflow the 16-bit sum of two products"
        if geometry.macs < self.least_macs:
            return f"{geometry.macs} multiply-accumulates do not pay for a dispatch of their own"
        return ""


_I8_MLAL = Layout(tile_rows=4, tile_cols=16, least_cols=8, interleave=2, depth_step=8, element_bytes=1)
_I8_DOT = Layout(
    tile_rows=4, tile_cols=16, least_cols=8, interleave=4, depth_step=8, element_bytes=1, narrow=True
)
_I8_DEPTHWISE = Layout(tile_rows=1, tile_cols=16, least_cols=16, interleave=1, depth_step=1, element_bytes=1)
_I8_DEPTHWISE_A76 = Layout(
    tile_rows=1, tile_cols=16, least_cols=16, interleave=1, depth_step=1, element_bytes=1, narrow=True
)

KERNELS: tuple[Kernel, ...] = (
    Kernel(name="i8_gemm_dot", source="i8_gemm_dot.c", element="i8", depthwise=False, layout=_I8_DOT,
           needs_dotprod=True),
    Kernel(name="i8_gemm_mlal", source="i8_gemm_mlal.c", element="i8", depthwise=False, layout=_I8_MLAL,
           without_dotprod=True),
    # On the A76 a conversion between integer and float takes two cycles of one pipe, an addition
    # half a cycle of two: there the narrow form pays. On A53 and A72 it does not.
    Kernel(name="i8_depthwise", source="i8_depthwise.c", element="i8", depthwise=True,
           layout=_I8_DEPTHWISE_A76, needs_dotprod=True, max_taps=121),
    Kernel(name="i8_depthwise", source="i8_depthwise.c", element="i8", depthwise=True,
           layout=_I8_DEPTHWISE, without_dotprod=True, max_taps=121),
)  # fmt: skip


def choose(conv: Convolution, target: Target) -> tuple[Kernel | None, str]:
    """The kernel for a convolution, or why there is none."""
    reason = f"no {conv.element} kernel for this core"
    for kernel in KERNELS:
        if kernel.element != conv.element or kernel.depthwise != conv.geometry.depthwise:
            continue
        if not kernel.runs_on(target):
            continue
        reason = kernel.refusal(conv)
        if not reason:
            return kernel, ""
    return None, reason
