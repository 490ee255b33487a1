"""Puts kernels into a module where they win: the one function that code generation calls."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgectl.codegen.kernels.blob import pack_blob, plan
from edgectl.codegen.kernels.catalog import choose
from edgectl.codegen.kernels.insertion import insert_dispatch
from edgectl.codegen.kernels.matching import find_sites
from edgectl.codegen.kernels.objects import build_object, supports
from edgectl.codegen.kernels.target_attribute import executable_target
from edgectl.records import KernelChoice
from edgectl_toolchains import Target

__all__ = ["KernelResult", "apply"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResult:
    """A module with kernel dispatches, the flags it needs, and what was decided where.

    ``module`` names its objects by digest, so equal bytes mean an equal program.
    """

    module: bytes
    object_dir: Path
    flags: tuple[str, ...]
    choices: tuple[KernelChoice, ...]


def apply(
    module: bytes,
    target: Target,
    flags: Sequence[str],
    *,
    run_compiler: Callable[[bytes, Sequence[str]], bytes],
    object_dir: Path,
) -> KernelResult:
    """Replaces convolutions and matrix products by kernels for the target.

    Args:
        module: MLIR bytecode or text in the TOSA dialect, channels last.
        target: the board.
        flags: the flags that the module will be compiled with.
        run_compiler: runs ``iree-compile`` over a module with flags.
        object_dir: where compiled kernels are kept.

    Returns:
        The module (unchanged when nothing matched) and the flags to add.

    Raises:
        CompileError: a kernel does not compile.
    """
    if not supports(target):
        choice = KernelChoice(
            dispatch="*", kernel="", reason=f"there are no kernels for {target.cpu}"
        )
        return KernelResult(module=module, object_dir=object_dir, flags=(), choices=(choice,))
    from iree.compiler import ir

    context = ir.Context()
    with context, ir.Location.unknown():
        try:
            parsed = ir.Module.parse(module)
        except ir.MLIRError:
            # The compiler reads the same bytes next and says what is wrong with them.
            choice = KernelChoice(dispatch="*", kernel="", reason="the module cannot be read")
            return KernelResult(module=module, object_dir=object_dir, flags=(), choices=(choice,))
        choices: list[KernelChoice] = []
        attribute: str | None = None
        names: set[str] = set()
        for site in find_sites(parsed):
            name = _unique(site.name, names)
            if site.convolution is None:
                choices.append(KernelChoice(dispatch=name, kernel="", reason=site.reason))
                continue
            kernel, reason = choose(site.convolution, target)
            split = (
                None
                if kernel is None
                else plan(site.convolution, kernel.layout, cores=target.cores)
            )
            if kernel is None or split is None:
                reason = reason or "one row of its input does not fit the kernel's buffer"
                choices.append(KernelChoice(dispatch=name, kernel="", reason=reason))
                continue
            if attribute is None:
                attribute = executable_target(run_compiler, flags)
            insert_dispatch(
                parsed,
                name=name,
                symbol=kernel.symbol,
                object_path=build_object(
                    kernel.source, target.cpu, cache_dir=object_dir, in_order=kernel.in_order
                ),
                target_attribute=attribute,
                groups=split.groups,
                inputs=[site.input],
                blob=pack_blob(site.convolution, kernel.layout, split),
                replaced=site.operations,
            )
            choices.append(
                KernelChoice(dispatch=name, kernel=kernel.name, reason=_why(site.convolution))
            )
        if attribute is None:
            return KernelResult(
                module=module, object_dir=object_dir, flags=(), choices=tuple(choices)
            )
        result = _bytecode(parsed)
    return KernelResult(
        module=result,
        object_dir=object_dir,
        flags=(f"--iree-hal-executable-object-search-path={object_dir}",),
        choices=tuple(choices),
    )


def _unique(name: str, taken: set[str]) -> str:
    base = "edgectl_" + re.sub(r"\W", "_", name)
    candidate, number = base, 1
    while candidate in taken:
        number += 1
        candidate = f"{base}_{number}"
    taken.add(candidate)
    return candidate


def _why(conv: Any) -> str:
    return f"{conv.geometry.macs / 1e6:.2f} M multiply-accumulates"


def _bytecode(module: Any) -> bytes:
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()
