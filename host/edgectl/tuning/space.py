"""The choices that are tried: one axis each, one entry a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgectl_toolchains import Target

__all__ = ["Candidate", "axes_for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to compile and run a model; the default of everything is edgectl's own choice.

    ``precision`` is a recipe's name (``fp32`` for none), ``flags`` and ``tiles`` are names in
    `FLAGS` and `TILES`. ``threads`` matters on a device only; ``None`` takes all cores.
    """

    precision: str = "fp32"
    kernels: bool = True
    flags: str = "default"
    tiles: str = "default"
    threads: int | None = None

    @property
    def compiler_flags(self) -> tuple[str, ...]:
        """For ``iree-compile``, after the target's own."""
        return (*FLAGS[self.flags], *TILES[self.tiles])

    @property
    def label(self) -> str:
        """What differs from edgectl's own choice, in words."""
        words = [self.precision] if self.precision != "fp32" else []
        words += [] if self.kernels else ["no kernels"]
        words += [self.flags] if self.flags != "default" else []
        words += [self.tiles] if self.tiles != "default" else []
        words += [f"{self.threads} threads"] if self.threads is not None else []
        return ", ".join(words) or "default"


_WINOGRAD = (
    "builtin.module(util.func(iree-linalg-ext-convert-conv2d-to-winograd{replace-all-convs=true}))"
)
FLAGS: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "no data tiling": ("--iree-opt-data-tiling=false",),
    "no loop unrolling": ("--iree-llvmcpu-loop-unrolling=false",),
    "no ukernels": ("--iree-llvmcpu-enable-ukernels=none",),
    "all ukernels": ("--iree-llvmcpu-enable-ukernels=all",),
    "O2": ("--iree-opt-level=O2",),
    "winograd": (
        f"--iree-preprocessing-pass-pipeline={_WINOGRAD}",
        "--iree-opt-const-expr-max-size-increase-threshold=16777216",
    ),
}
# How much work one workgroup gets; smaller parts share out better among cores.
TILES: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "tiles of 32": ("--iree-llvmcpu-distribution-size=32",),
    "tiles of 128": ("--iree-llvmcpu-distribution-size=128",),
    "single threaded": ("--iree-llvmcpu-disable-distribution",),
}


def axes_for(
    default: Candidate,
    target: Target,
    *,
    precisions: Sequence[str] = (),
    threads: Sequence[int] = (),
) -> tuple[tuple[Candidate, ...], ...]:
    """The alternatives to try, an axis after the other; what matters most comes first.

    Args:
        default: what the user would get without tuning.
        target: the board; it says which precisions it computes in.
        precisions: recipes that the user accepts the numbers of.
        threads: numbers of threads, where a device is there to try them.
    """
    fits = [p for p in precisions if p != "fp16" or target.has_fp16]
    return (
        tuple(replace(default, precision=p) for p in fits if p != default.precision),
        (replace(default, kernels=not default.kernels),),
        tuple(replace(default, flags=name) for name in FLAGS if name != default.flags),
        tuple(replace(default, tiles=name) for name in TILES if name != default.tiles),
        tuple(replace(default, threads=n) for n in threads if n != default.threads),
    )
