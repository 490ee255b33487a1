"""The one error of the runner: a sentence for the user, and the exit code that goes with it.

It becomes ``{"error": {"code", "message", "cause", "next_step"}}`` on standard output, so that
the host can raise it again as its own class without parsing text.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "BUSY",
    "CONFIGURATION",
    "DEVICE",
    "INTERNAL",
    "MISMATCH",
    "USAGE",
    "RunnerError",
]

# The host's errors.py gives these numbers their meaning; they are the wire format here.
INTERNAL = 1
USAGE = 2
CONFIGURATION = 3
DEVICE = 7
MISMATCH = 8
BUSY = 75


class RunnerError(Exception):
    """What went wrong on the device, why it probably did, and what to do about it."""

    def __init__(
        self,
        message: str,
        *,
        code: int = DEVICE,
        cause: str | None = None,
        next_step: str | None = None,
        details: dict[str, Any] | None = None,
    ):
        super().__init__(message)
        self.message = message
        self.code = code
        self.cause = cause
        self.next_step = next_step
        self.details = details or {}

    def to_document(self) -> dict[str, Any]:
        """The error as it travels to the host."""
        error: dict[str, Any] = {
            "code": self.code,
            "message": self.message,
            "cause": self.cause,
            "next_step": self.next_step,
        }
        if self.details:
            error["details"] = self.details
        return {"error": error}
