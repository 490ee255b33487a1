"""The ``#hal.executable.target`` that a set of compiler flags produces.

An object is linked only into executables whose target is equal to the one it was listed for, so it
is asked of the compiler itself instead of being written down twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edgectl.errors import CompileError

__all__ = ["executable_target"]

_PROBE = b"""func.func @probe(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = arith.addf %a, %a : tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
"""
_HEAD = "#hal.executable.target<"


def executable_target(
    run_compiler: Callable[[bytes, Sequence[str]], bytes], flags: Sequence[str]
) -> str:
    """The attribute's text.

    Args:
        run_compiler: runs ``iree-compile`` over a module with flags and returns its output.
        flags: the flags of the real compilation.

    Raises:
        CompileError: the compiler printed no such attribute.
    """
    text = run_compiler(_PROBE, [*flags, "--compile-to=flow"]).decode(errors="replace")
    start = text.find(_HEAD)
    depth = 0
    for at in range(max(start, 0), len(text)):
        if text[at] == "<":
            depth += 1
        elif text[at] == ">" and text[at - 1] != "-":
            depth -= 1
            if depth == 0 and start >= 0:
                return text[start : at + 1]
    raise CompileError(
        "IREE's compiler does not say which executable target these flags mean.",
        cause="Its printed form has changed; kernels cannot be linked without it.",
        next_step="Compile with --no-kernels.",
    )
