"""What one check says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["CheckResult", "Status", "failed", "ok", "unknown", "warning"]


class Status(StrEnum):
    """``failed`` would stop a deployment; ``warning`` makes it slower or less trustworthy."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """``where`` is ``host`` or ``device``; whatever is not ok has a ``fix``."""

    name: str
    where: str
    status: Status
    message: str
    fix: str | None = None


def ok(name: str, where: str, message: str) -> CheckResult:
    """All well."""
    return CheckResult(name=name, where=where, status=Status.OK, message=message)


def warning(name: str, where: str, message: str, *, fix: str) -> CheckResult:
    """Works, with something to improve."""
    return CheckResult(name=name, where=where, status=Status.WARNING, message=message, fix=fix)


def failed(name: str, where: str, message: str, *, fix: str) -> CheckResult:
    """A deployment cannot work."""
    return CheckResult(name=name, where=where, status=Status.FAILED, message=message, fix=fix)


def unknown(name: str, where: str, message: str, *, fix: str) -> CheckResult:
    """Nobody could tell, which is not the same as all well."""
    return CheckResult(name=name, where=where, status=Status.UNKNOWN, message=message, fix=fix)
