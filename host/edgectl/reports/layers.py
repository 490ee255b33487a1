"""What one layer of a model costs: the record that profiles and estimates hand to a report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["LayerCost", "with_shares"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """One layer.

    ``name`` is the dotted module path (``features.3.conv.1``), ``operator`` its kind
    (``conv2d``). ``macs`` counts multiply-accumulates; ``bytes`` what must move at least: inputs,
    weights and outputs. ``time_ms`` is per inference, ``share`` its part of the whole, 0 to 1.
    """

    name: str
    operator: str
    macs: int
    bytes: int
    time_ms: float
    share: float


def with_shares(
    rows: Iterable[tuple[str, str, int, int, float]], *, whole_ms: float
) -> tuple[LayerCost, ...]:
    """Records of (name, operator, macs, bytes, time_ms), with shares of ``whole_ms``."""
    return tuple(
        LayerCost(
            name=name,
            operator=operator,
            macs=macs,
            bytes=size,
            time_ms=time_ms,
            share=time_ms / whole_ms if whole_ms > 0 else 0.0,
        )
        for name, operator, macs, size, time_ms in rows
    )
