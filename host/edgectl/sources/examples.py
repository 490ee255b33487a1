"""Example inputs where only shapes are known, and variations of them for later calls.

Floats are drawn from a standard normal distribution; integers from 0..9 (a range that every
vocabulary has), except that inputs named like a mask are ones; booleans are true. A model that
refuses 0..9 as indices gets zeros (see `assembling`). All of it is seeded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgectl.errors import UsageError
from edgectl.sources.input_specs import DimensionRange, InputSpec

__all__ = ["example_array", "varied"]

_SMALL_INTEGERS = 10
_VARIATION = 0.1


def example_array(spec: InputSpec, dynamic: Sequence[DimensionRange], *, seed: int) -> np.ndarray:
    """An array of this shape and dtype; varying dimensions get a size of their range."""
    ranges = {item.name: item for item in dynamic}
    shape = tuple(_size(spec, dim, ranges) for dim in spec.shape)
    generator = np.random.default_rng(seed)
    dtype = spec.dtype
    if dtype == "bfloat16":
        import ml_dtypes

        return generator.standard_normal(shape).astype(ml_dtypes.bfloat16)
    if dtype == "bool":
        return np.ones(shape, dtype=np.bool_)
    if np.issubdtype(np.dtype(dtype), np.floating):
        return np.asarray(generator.standard_normal(shape)).astype(dtype)
    if "mask" in (spec.name or "").lower():
        return np.ones(shape, dtype=dtype)
    return np.asarray(generator.integers(0, _SMALL_INTEGERS, size=shape)).astype(dtype)


def varied(array: np.ndarray, *, seed: int) -> np.ndarray:
    """Another plausible input: floats move by a tenth of their spread, all else stays.

    Integers may be indices, so they are kept within what the model is known to accept.
    """
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        return array.copy()
    generator = np.random.default_rng(seed)
    wide = array.astype(np.float64)
    spread = float(np.std(wide)) or 1.0
    noise = generator.standard_normal(array.shape) * (_VARIATION * spread)
    return np.asarray(wide + noise).astype(array.dtype)


def _size(spec: InputSpec, dim: int | str | None, ranges: dict[str, DimensionRange]) -> int:
    if isinstance(dim, int):
        return dim
    if dim is None:
        return 2
    if dim not in ranges:
        raise UsageError(
            f"--input-spec {str(spec)!r} has a dimension {dim!r} without a range.",
            next_step=f"Add --dynamic {dim}=1..8.",
        )
    limit = ranges[dim]
    # torch.export takes a size of 1 for a constant, so the example has at least 2.
    size = max(2, limit.minimum)
    return size if limit.maximum is None else min(size, limit.maximum)
