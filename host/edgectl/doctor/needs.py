"""What a deployment needs of a device."""

from __future__ import annotations

from dataclasses import dataclass

from edgectl_toolchains import Target

__all__ = ["Needs"]

RESERVE_BYTES = 16 << 20
"""Left free for logs and results, so that a deployment never fills the last of a disk."""

_RUNTIME_BYTES = 160 << 20
_RUNTIME_INODES = 2500


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """``target`` is ``None`` when no model is at hand; the defaults fit runtime and a model.

    ``memory_required`` says that ``memory_bytes`` was measured and not guessed, so that having
    less is fatal.
    """

    target: Target | None = None
    disk_bytes: int = _RUNTIME_BYTES
    inodes: int = _RUNTIME_INODES
    memory_bytes: int = 96 << 20
    memory_required: bool = False
