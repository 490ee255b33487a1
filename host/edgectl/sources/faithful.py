"""Refuses a model whose answers nobody could check: random, or other than what export captured."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram

from edgectl.errors import UnsupportedModelError
from edgectl.records import ExampleCall
from edgectl.sources.golden import fresh, make_calls
from edgectl.sources.loaded import Arguments

__all__ = ["check_captured", "check_repeatable"]

_TOLERANCE = 1e-4


def check_repeatable(
    module: nn.Module,
    called: nn.Module,
    arguments: Arguments,
    first: ExampleCall,
    *,
    stateful: bool,
) -> None:
    """The same input has to give the same answer.

    ``called`` is the copy of ``module`` that gave ``first``; without buffers that change it must
    give it again.

    Raises:
        UnsupportedModelError: forward draws random numbers, or keeps state outside of buffers
            (the message names the attributes).
    """
    if _close(make_calls(fresh(module) if stateful else called, [arguments])[0], first):
        return
    if not stateful and _close(make_calls(fresh(module), [arguments])[0], first):
        changed = _changed_attributes(module, called)
        raise UnsupportedModelError(
            "The model keeps state from one call to the next outside of its buffers"
            + (f": {', '.join(changed)}." if changed else "."),
            cause="torch.export turns such values into constants, so later calls would be wrong.",
            next_step="Register the state as a buffer: self.register_buffer(name, tensor).",
        )
    raise UnsupportedModelError(
        "The model answers the same input differently each time, so nothing can tell whether "
        "a device is right.",
        cause="forward draws random numbers.",
        next_step="Make the random tensor an input, or keep it in a buffer.",
    )


def check_captured(
    program: ExportedProgram, successive: list[Arguments], calls: tuple[ExampleCall, ...]
) -> None:
    """The exported program has to give what the original module gave, call after call.

    Raises:
        UnsupportedModelError: it does not.
    """
    # A copy: the module that a program makes shares its buffers, and the calls write to them.
    exported = make_calls(fresh(program.module()), successive)
    for index, (got, wanted) in enumerate(zip(exported, calls, strict=True)):
        if not _close(got, wanted):
            raise UnsupportedModelError(
                f"What torch.export captured computes something else than the model (call {index})."
                " Nothing was compiled.",
                cause="forward depends on Python values that change from call to call.",
                next_step="Keep such values in buffers (register_buffer) as tensors.",
            )


def _close(left: ExampleCall, right: ExampleCall) -> bool:
    return len(left.outputs) == len(right.outputs) and all(
        _same(a, b) for a, b in zip(left.outputs, right.outputs, strict=True)
    )


def _same(a: object, b: object) -> bool:
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return type(a) is type(b) and (a == b or a != a)  # NaN is itself here
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "biu":
        return np.array_equal(a, b)
    wide_a, wide_b = a.astype(np.complex128), b.astype(np.complex128)
    finite = wide_b[np.isfinite(wide_b)]
    scale = float(np.max(np.abs(finite))) if finite.size else 1.0
    return np.allclose(wide_a, wide_b, rtol=_TOLERANCE, atol=_TOLERANCE * scale, equal_nan=True)


def _changed_attributes(module: nn.Module, called: nn.Module) -> list[str]:
    """Dotted names of Python attributes that differ between the untouched and the called copy."""
    other = dict(called.named_modules())
    changed: list[str] = []
    for path, part in module.named_modules():
        mine, theirs = vars(part), vars(other.get(path, part))
        for name in sorted(mine.keys() | theirs.keys()):
            if name.startswith("_") and name in vars(nn.Module()):
                continue
            if _differs(mine.get(name), theirs.get(name)):
                changed.append(f"{path}.{name}" if path else f"self.{name}")
    return changed


def _differs(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return not (
            isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and torch.equal(a, b)
        )
    if isinstance(a, (int, float, str, list, tuple, dict, type(None))):
        return type(a) is not type(b) or repr(a) != repr(b)
    return False
