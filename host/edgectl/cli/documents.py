"""What ``--json`` prints, as records; their schemas are in ``edgectl/schemas``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgectl_runner.contract import RunReport

__all__ = ["SCHEMA_VERSION", "DeploymentDocument", "ErrorDetails", "ErrorDocument"]

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentDocument:
    """A model on a device, what travelled (bytes), and what its run there gave."""

    schema_version: int = SCHEMA_VERSION
    model: str
    target: str
    device: str
    emulated: bool
    release: str
    payload_bytes_sent: int
    runtime_bytes_sent: int
    outputs_match: bool
    report: RunReport
    accuracy: dict[str, Any] | None = None  # of a quantized model: whose the loss is


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDetails:
    """An error; ``code`` is the exit code."""

    code: int
    kind: str
    message: str
    cause: str | None
    next_step: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDocument:
    """What any command prints when it fails."""

    schema_version: int = SCHEMA_VERSION
    error: ErrorDetails
