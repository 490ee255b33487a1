"""Decodes the firmware's ``get_throttled`` bits: what is so now, and what was since the start.

Source: Raspberry Pi documentation, "vcgencmd", table of get_throttled.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ThrottleStatus", "decode_throttling"]

_MEANINGS = (
    "under-voltage",
    "frequency capped",
    "throttled",
    "temperature limit",
)
_SINCE_BOOT_SHIFT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleStatus:
    """``known`` is false when nobody asked the firmware; that is not "all well"."""

    known: bool
    now: tuple[str, ...] = ()
    since_boot: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.known:
            return "unknown"
        if not self.now and not self.since_boot:
            return "ok"
        parts = []
        if self.now:
            parts.append("now: " + ", ".join(self.now))
        if self.since_boot:
            parts.append("since boot: " + ", ".join(self.since_boot))
        return "; ".join(parts)


def decode_throttling(flags: int | None) -> ThrottleStatus:
    """Reads the bits; ``None`` is what the device says when it does not know."""
    if flags is None:
        return ThrottleStatus(known=False)
    return ThrottleStatus(
        known=True,
        now=tuple(m for bit, m in enumerate(_MEANINGS) if flags >> bit & 1),
        since_boot=tuple(
            m for bit, m in enumerate(_MEANINGS) if flags >> (bit + _SINCE_BOOT_SHIFT) & 1
        ),
    )
