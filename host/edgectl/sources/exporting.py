"""``torch.export`` with words for what it refuses."""

from __future__ import annotations

import contextlib
import io
import linecache
import logging
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from edgectl.errors import EdgectlError, UnsupportedModelError
from edgectl.sources.loaded import Arguments

__all__ = ["export_program", "user_line"]

_OURS = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


def export_program(
    module: nn.Module, arguments: Arguments, *, dynamic_shapes: Any = None
) -> ExportedProgram:
    """Exports at ATen level, without gradients.

    Raises:
        UnsupportedModelError: names the line of the model and what to do about it.
    """
    # torch logs and prints whole graphs when it gives up; what matters is in our own error.
    logging.disable(logging.CRITICAL)
    try:
        with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            return torch.export.export(
                module,
                arguments.args,
                arguments.kwargs,
                dynamic_shapes=dynamic_shapes,
                strict=False,
            )
    except Exception as error:
        raise _refused(error) from error
    finally:
        logging.disable(logging.NOTSET)


def _refused(error: Exception) -> EdgectlError:
    chain = _chain(error)
    line = next((found for item in chain if (found := user_line(item.__traceback__))), None)
    where = f" at {line}" if line else ""
    text = str(error)
    if any(isinstance(item, GuardOnDataDependentSymNode) for item in chain):
        return UnsupportedModelError(
            f"forward decides by the values in a tensor{where}. A compiled model has one path "
            "for every input.",
            cause=_guard(chain),
            next_step="Write both paths with torch.cond or torch.where, or move the decision out "
            "of forward.",
        )
    if "onstraints violated" in text or "specialized" in text:
        return UnsupportedModelError(
            f"A dimension that --dynamic lets vary is fixed by the model{where}.",
            cause=_first_line(text),
            next_step="Give that dimension its size in --input-spec, or narrow its range.",
        )
    return UnsupportedModelError(
        f"torch.export cannot trace forward{where}.",
        cause=f"{type(error).__name__}: {_first_line(text)}",
        next_step="Rewrite that line with tensor operations, or move it out of forward.",
    )


def user_line(trace: TracebackType | None) -> str | None:
    """``file:line: `code` `` of the innermost frame that is neither torch's nor ours."""
    found = None
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith((*_OURS, "<")):
            code = linecache.getline(name, trace.tb_lineno).strip()
            found = f"{name}:{trace.tb_lineno}" + (f": `{code}`" if code else "")
        trace = trace.tb_next
    return found


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what it was raised from, innermost first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return chain[::-1]


def _guard(chain: list[BaseException]) -> str | None:
    for item in chain:
        if isinstance(item, GuardOnDataDependentSymNode):
            condition = str(getattr(item, "cond", "")) or _first_line(str(item))
            return f"Its condition is {condition} (u0, u1... are values only known at run time)."
    return None


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[0][:300]
