"""How a caller follows the work of the stages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgectl.remote import Progress

__all__ = ["Hooks"]


def _no_step(text: str) -> AbstractContextManager[None]:
    del text
    return nullcontext()


def _no_count(text: str) -> AbstractContextManager[Callable[[str, int, int | None], None] | None]:
    del text
    return nullcontext()


def _no_transfer(text: str) -> AbstractContextManager[Progress | None]:
    del text
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """How a caller follows the work.

    ``step`` wraps each stage, ``transfer`` each upload (bytes done, bytes in all), ``count`` what
    has many steps of its own (its name, how many are done, how many there are if that is known).
    """

    step: Callable[[str], AbstractContextManager[None]] = _no_step
    count: Callable[
        [str], AbstractContextManager[Callable[[str, int, int | None], None] | None]
    ] = _no_count
    transfer: Callable[[str], AbstractContextManager[Progress | None]] = _no_transfer
