"""What ``--input-spec`` and ``--dynamic`` say, and precise words when they say it wrong.

    1x3x224x224xf32            an unnamed input, by position
    pixels=1x3x224x224xf32     a named one
    f32                        a scalar
    ids=batchx16xi64           a dimension that may vary, with ``--dynamic batch=1..8``
    ?x16xi64                   the same without a range

Dtypes are IREE's (``f32``, ``f16``, ``bf16``, ``f64``, ``i8``, ``ui8``, ``i16``, ``i32``, ``i64``,
``i1``) or NumPy's (``float32``, ``uint8``, ``bool``...).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from edgectl.errors import UsageError

__all__ = ["DimensionRange", "InputSpec", "parse_dynamic", "parse_input_spec", "parse_input_specs"]

_DTYPES = {
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "i1": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "si8": "int8",
    "si16": "int16",
    "si32": "int32",
    "si64": "int64",
    "ui8": "uint8",
    "u8": "uint8",
}
_NUMPY_NAMES = frozenset(_DTYPES.values())
_NAME = re.compile(r"[A-Za-z_][\w.]*\Z")
_DIMENSION_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_EXAMPLE = "Write it as 1x3x224x224xf32, or with a name as pixels=1x3x224x224xf32."


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One input: ``shape`` holds sizes, names of dimensions that vary, or ``None`` for ``?``."""

    name: str | None
    shape: tuple[int | str | None, ...]
    dtype: str

    def __str__(self) -> str:
        dims = "x".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name}={dims}x{self.dtype}" if self.name else f"{dims}x{self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionRange:
    """``batch=1..8``: the sizes, both ends included, that a dimension may take."""

    name: str
    minimum: int
    maximum: int | None


def parse_input_specs(texts: Sequence[str]) -> tuple[InputSpec, ...]:
    """Parses every ``--input-spec``; names must be all different.

    Raises:
        UsageError: one of them is malformed, or a name is there twice.
    """
    specs = tuple(parse_input_spec(text) for text in texts)
    seen: set[str] = set()
    for spec in specs:
        if spec.name is not None and spec.name in seen:
            raise UsageError(
                f"Two --input-spec options name the input {spec.name!r}.",
                next_step="Give each input once.",
            )
        seen.add(spec.name or "")
    return specs


def parse_input_spec(text: str) -> InputSpec:
    """Parses one ``--input-spec``.

    Raises:
        UsageError: says which part cannot be read, and what would be.
    """
    name, equals, rest = text.strip().rpartition("=")
    if equals and not _NAME.match(name):
        raise _malformed(text, f"{name!r} is not a name")
    if rest.lower() in _NUMPY_NAMES or rest in _DTYPES:  # bfloat16 and friends hold no size
        *dims, dtype = [rest]
    else:
        *dims, dtype = rest.split("x")
    known = _DTYPES.get(dtype) or (dtype if dtype in _NUMPY_NAMES else None)
    if known is None:
        if not dtype or dtype.isdigit():
            raise _malformed(text, "the dtype at the end is missing")
        raise _malformed(
            text, f"{dtype!r} is not a dtype; known are {', '.join(sorted(set(_DTYPES) - {'u8'}))}"
        )
    return InputSpec(
        name=name if equals else None,
        shape=tuple(_dimension(text, dim) for dim in dims),
        dtype=known,
    )


def parse_dynamic(text: str) -> DimensionRange:
    """Parses ``batch=1..8``, ``batch=1..`` or ``batch``.

    Raises:
        UsageError: it is none of these, or the range is empty.
    """
    name, _, bounds = text.strip().partition("=")
    match = re.fullmatch(r"(\d+)\.\.(\d*)", bounds) if bounds else None
    if not _DIMENSION_NAME.match(name) or (bounds and match is None):
        raise UsageError(
            f"--dynamic {text!r} is not a dimension with its range.",
            next_step="Write it as batch=1..8, both ends included.",
        )
    minimum = int(match[1]) if match else 1
    maximum = int(match[2]) if match and match[2] else None
    if minimum < 1 or (maximum is not None and maximum <= minimum):
        raise UsageError(
            f"--dynamic {text!r} allows no range of sizes: it starts at {minimum}"
            + (f" and ends at {maximum}." if maximum is not None else "."),
            next_step="Write the smaller size first, at least 1, as batch=1..8.",
        )
    return DimensionRange(name=name, minimum=minimum, maximum=maximum)


def _dimension(text: str, dim: str) -> int | str | None:
    if dim == "?":
        return None
    if dim.isascii() and dim.isdigit():
        size = int(dim)
        if size == 0:
            raise _malformed(text, "a dimension of size 0 holds no data")
        return size
    if _DIMENSION_NAME.match(dim):
        return dim
    raise _malformed(text, f"{dim!r} is not a size" if dim else "a size is missing between two x")


def _malformed(text: str, why: str) -> UsageError:
    return UsageError(f"--input-spec {text!r} cannot be read: {why}.", next_step=_EXAMPLE)
