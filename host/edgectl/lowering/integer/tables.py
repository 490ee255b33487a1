"""Functions of one int8 value as their 256 answers."""

from __future__ import annotations

from collections.abc import Callable

import torch

from edgectl.lowering.integer.pairs import Int8Value

__all__ = ["function_table", "rescaling_table"]


def function_table(
    function: Callable[[torch.Tensor], torch.Tensor], value: Int8Value, to: Int8Value
) -> torch.Tensor:
    """int8 [256]: what ``function`` answers to each int8 value, stored as ``to`` says.

    Computed as the fake-quantized program does it, so that both agree on every entry.
    """
    integers = torch.arange(-128, 128, dtype=torch.int32)
    q = torch.ops.quantized_decomposed
    real = q.dequantize_per_tensor.default(
        integers.to(torch.int8), value.scale, value.zero_point, -128, 127, torch.int8
    )
    answer = function(real)
    result: torch.Tensor = q.quantize_per_tensor.default(
        answer, to.scale, to.zero_point, to.minimum, to.maximum, torch.int8
    )
    return result


def rescaling_table(value: Int8Value, to: Int8Value) -> torch.Tensor:
    """int8 [256]: each value in another scale."""
    return function_table(lambda x: x, value, to)
