"""Reads the profiles that IREE's runtime writes, with the ``iree-profile`` tool of its wheel."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgectl.errors import DeviceError, EdgectlError

__all__ = ["DispatchEvent", "parse_events", "read_trace", "runtime_tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchEvent:
    """One execution of a dispatch; times are of the machine's monotonic clock.

    ``workgroups`` is how often its function was called for it.
    """

    symbol: str
    start_ns: int
    end_ns: int
    workgroups: int


def runtime_tool(name: str) -> Path:
    """A tool of this computer's own IREE runtime.

    Raises:
        EdgectlError: the package has it not.
    """
    spec = importlib.util.find_spec("iree._runtime_libs")
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        if (tool := Path(folder) / name).is_file():
            return tool
    raise EdgectlError(
        f"This computer's IREE runtime has no {name}.",
        next_step="pip install --force-reinstall 'iree-base-runtime==3.13.*'",
    )


def read_trace(file: Path) -> tuple[DispatchEvent, ...]:
    """The dispatches of a profile (``.ireeprof``), by start.

    Raises:
        DeviceError: the file is not a profile, or holds no dispatch.
    """
    command = [str(runtime_tool("iree-profile")), "dispatch", "--dispatch_events"]
    command += ["--format=jsonl", str(file)]
    run = subprocess.run(command, capture_output=True, check=False)
    if run.returncode != 0:
        words = run.stderr.decode(errors="replace").strip().splitlines()
        raise _unreadable(words[-1][:200] if words else f"exit code {run.returncode}")
    return parse_events(run.stdout.decode(errors="replace"))


def parse_events(text: str) -> tuple[DispatchEvent, ...]:
    """The dispatches in what ``iree-profile dispatch --dispatch_events --format=jsonl`` prints.

    Raises:
        DeviceError: there is none, or a line is not what it should be.
    """
    events = []
    for line in text.splitlines():
        try:
            document: dict[str, Any] = json.loads(line)
            if not str(document.get("type", "")).endswith("dispatch_event"):
                continue
            if not document.get("valid", True):
                continue
            workgroups = 1
            for count in document["workgroup_count"]:
                workgroups *= int(count)
            events.append(
                DispatchEvent(
                    symbol=str(document["key"]),
                    start_ns=int(document["start_host_time_ns"]),
                    end_ns=int(document["end_host_time_ns"]),
                    workgroups=workgroups,
                )
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(f"{type(error).__name__} in {line[:80]!r}") from error
    if not events:
        raise _unreadable("it holds no dispatch")
    return tuple(sorted(events, key=lambda event: event.start_ns))


def _unreadable(reason: str) -> DeviceError:
    return DeviceError(
        f"The profile that the runtime wrote cannot be read: {reason}.",
        cause="The run was cut short, or device and computer have different IREE runtimes.",
        next_step="Run the command again; `edgectl doctor` compares the versions.",
    )
