"""Programs of made-up dispatches, for tests of what is said about them."""

from __future__ import annotations

from edgectl.profiling import DispatchEvent
from edgectl.records import DispatchCall

__all__ = ["call", "event"]


def call(symbol: str, module: str = "", **values: object) -> DispatchCall:
    """One call; everything that is not given is empty."""
    defaults: dict[str, object] = {
        "function": "main",
        "symbol": symbol,
        "module": module,
        "operator": "aten.convolution.default",
        "nodes": (),
        "read_bytes": 0,
        "written_bytes": 0,
    }
    return DispatchCall(**{**defaults, **values})  # type: ignore[arg-type]


def event(symbol: str, start_ms: float, end_ms: float) -> DispatchEvent:
    """One execution of a dispatch."""
    return DispatchEvent(
        symbol=symbol, start_ns=int(start_ms * 1e6), end_ns=int(end_ms * 1e6), workgroups=1
    )
