"""The kernels there are, for which cores, and how each wants its weights packed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgectl.codegen.kernels import winograd
from edgectl.codegen.kernels.blob import Layout
from edgectl.codegen.kernels.shapes import Convolution, Geometry
from edgectl_toolchains import Target

__all__ = ["KERNELS", "Kernel", "choose"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One exported C function, the cores it is for and the convolutions that it computes.

    ``in_order`` kernels are written in the order in which an in-order core should issue them, and
    built without the compiler's own scheduling.
    """

    name: str
    source: str
    element: str
    depthwise: bool
    cpus: tuple[str, ...]
    layout: Layout
    max_taps: int = 1 << 30
    least_macs: int = 20_000
    in_order: bool = False

    @property
    def symbol(self) -> str:
        """The C function's name."""
        return f"edgectl_{self.name}"

    def refusal(self, conv: Convolution) -> str:
        """Why this convolution is not for this kernel; empty when it is."""
        if conv.geometry.macs < self.least_macs:
            return (
                f"{conv.geometry.macs} multiply-accumulates do not pay for a dispatch of their own"
            )
        return self.limit(conv)

    def limit(self, conv: Convolution) -> str:
        """Why the kernel could not compute this convolution; empty when it could."""
        geometry = conv.geometry
        if self.layout.winograd and (reason := winograd.refusal(geometry)):
            return reason
        if self.layout.columns_of_four and not _fits_columns(geometry):
            return "only 3x3 and 5x5 with stride 1 or 2 and whole groups of eight channels"
        if geometry.taps > self.max_taps:
            return f"{geometry.k_h}x{geometry.k_w} is larger than the kernel's pointer table"
        if conv.element == "i8" and bool((conv.weights == np.int8(-128)).any()):
            return "a weight of -128 would overflow the 16-bit sum of two products"
        return ""


def _fits_columns(geometry: Geometry) -> bool:
    return (
        geometry.k_h == geometry.k_w
        and geometry.k_w in (3, 5)
        and geometry.stride_w in (1, 2)
        and geometry.dilation_w == 1
        and geometry.out_c % 8 == 0
    )


_A53, _A72, _A76 = "cortex-a53", "cortex-a72", "cortex-a76"


def _i8_gemm(rows: int, interleave: int, *, narrow: bool = False, low_tile: float = 0.45) -> Layout:
    return Layout(
        low_tile=low_tile,
        tile_rows=rows,
        tile_cols=16,
        least_cols=8,
        interleave=interleave,
        depth_step=8,
        element_bytes=1,
        narrow=narrow,
    )


def _float_gemm(width: int, element_bytes: int, *, half_panels: bool = False) -> Layout:
    return Layout(
        tile_rows=8,
        tile_cols=2 * width,
        least_cols=width if half_panels else 2 * width,
        interleave=1,
        depth_step=width,
        element_bytes=element_bytes,
    )


def _depthwise(lanes: int, element_bytes: int, *, narrow: bool = False) -> Layout:
    return Layout(
        tile_rows=4,
        tile_cols=lanes,
        least_cols=lanes,
        interleave=1,
        depth_step=1,
        element_bytes=element_bytes,
        lanes=lanes,
        narrow=narrow,
    )


# On the A76 a conversion between integer and float takes two cycles of one pipe, an addition half
# a cycle of two: there the narrow form of requantization pays. On A53 and A72 it does not.
KERNELS: tuple[Kernel, ...] = (
    Kernel(
        name="i8_gemm_dot",
        source="i8_gemm_dot.c",
        element="i8",
        depthwise=False,
        cpus=(_A76,),
        layout=_i8_gemm(4, 4, narrow=True),
    ),
    Kernel(
        name="i8_gemm_mlal",
        source="i8_gemm_mlal.c",
        element="i8",
        depthwise=False,
        cpus=(_A72,),
        layout=_i8_gemm(4, 2),
    ),
    Kernel(
        name="i8_gemm_mlal",
        source="i8_gemm_mlal.c",
        element="i8",
        depthwise=False,
        cpus=(_A53,),
        layout=_i8_gemm(3, 2, low_tile=0.9),
        in_order=True,
    ),
    Kernel(
        name="i8_depthwise_dot",
        source="i8_depthwise_dot.c",
        element="i8",
        depthwise=True,
        cpus=(_A76,),
        layout=Layout(
            tile_rows=4,
            tile_cols=8,
            least_cols=8,
            interleave=4,
            depth_step=1,
            element_bytes=1,
            lanes=8,
            narrow=True,
            columns_of_four=True,
        ),
    ),
    Kernel(
        name="i8_depthwise",
        source="i8_depthwise.c",
        element="i8",
        depthwise=True,
        cpus=(_A76,),
        layout=_depthwise(16, 1, narrow=True),
        max_taps=121,
    ),
    Kernel(
        name="i8_depthwise",
        source="i8_depthwise.c",
        element="i8",
        depthwise=True,
        cpus=(_A72,),
        layout=_depthwise(16, 1),
        max_taps=121,
    ),
    Kernel(
        name="i8_depthwise",
        source="i8_depthwise.c",
        element="i8",
        depthwise=True,
        cpus=(_A53,),
        layout=_depthwise(16, 1),
        max_taps=121,
        in_order=True,
    ),
    Kernel(
        name="f32_winograd",
        source="f32_winograd.c",
        element="f32",
        depthwise=False,
        cpus=(_A53, _A72, _A76),
        layout=Layout(
            tile_rows=8,
            tile_cols=8,
            least_cols=8,
            interleave=1,
            depth_step=4,
            element_bytes=4,
            winograd=True,
        ),
    ),
    Kernel(
        name="f32_gemm",
        source="f32_gemm.c",
        element="f32",
        depthwise=False,
        cpus=(_A72, _A76),
        layout=_float_gemm(4, 4),
    ),
    Kernel(
        name="f32_gemm",
        source="f32_gemm.c",
        element="f32",
        depthwise=False,
        cpus=(_A53,),
        layout=_float_gemm(4, 4),
        in_order=True,
    ),
    Kernel(
        name="f32_depthwise",
        source="f32_depthwise.c",
        element="f32",
        depthwise=True,
        cpus=(_A72, _A76),
        layout=_depthwise(8, 4),
        max_taps=121,
    ),
    Kernel(
        name="f32_depthwise",
        source="f32_depthwise.c",
        element="f32",
        depthwise=True,
        cpus=(_A53,),
        layout=_depthwise(8, 4),
        max_taps=121,
        in_order=True,
    ),
    Kernel(
        name="f16_gemm",
        source="f16_gemm.c",
        element="f16",
        depthwise=False,
        cpus=(_A76,),
        layout=_float_gemm(8, 2, half_panels=True),
    ),
    Kernel(
        name="f16_depthwise",
        source="f16_depthwise.c",
        element="f16",
        depthwise=True,
        cpus=(_A76,),
        layout=_depthwise(16, 2),
        max_taps=121,
    ),
)


def choose(conv: Convolution, target: Target) -> tuple[Kernel | None, str]:
    """The kernel for a convolution, or why there is none."""
    reason = f"no {conv.element} kernel for {target.cpu}"
    for kernel in KERNELS:
        if (kernel.element, kernel.depthwise) != (conv.element, conv.geometry.depthwise):
            continue
        if target.cpu not in kernel.cpus:
            continue
        reason = kernel.refusal(conv)
        if not reason:
            return kernel, ""
    return None, reason
