"""What the commands that look after a device share: its runner, its releases, how they speak."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from edgectl.cli.connecting import connected
from edgectl.cli.console import Output
from edgectl.cli.options import device_option, output_options
from edgectl.errors import UsageError

if TYPE_CHECKING:
    from edgectl.remote import Device
    from edgectl.remote.agent_calls import RunnerHandle

__all__ = [
    "Managed",
    "dry_run_option",
    "full_release",
    "managed_device_options",
    "megabytes",
    "removal_result",
]

_RELEASE_DIGITS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Managed:
    """A device with edgectl's runner on it."""

    device: Device
    handle: RunnerHandle


def managed_device_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--device`` and ``--json``; the command gets ``output`` and ``managed``.

    ``managed`` is a context manager that gives a `Managed`. Nothing is installed or updated on
    the device: these commands must work without the internet and with an older runner.
    """

    @device_option
    @output_options
    @functools.wraps(function)
    def wrapped(
        output: Output,
        device: str | None,
        accept_new_host_key: bool,
        ssh_timeout_s: float,
        **values: Any,
    ) -> Any:
        @contextmanager
        def managed() -> Iterator[Managed]:
            from edgectl.remote.install import find_runner

            with connected(
                device,
                output,
                accept_new_host_key=accept_new_host_key,
                ssh_timeout_s=ssh_timeout_s,
            ) as remote:
                yield Managed(device=remote, handle=find_runner(remote))

        return function(output=output, managed=managed, **values)

    return wrapped


def dry_run_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--dry-run``."""
    return click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")(
        function
    )


def full_release(managed: Managed, text: str) -> str:
    """The release that ``text`` is, or begins.

    Raises:
        UsageError: no release, or several, begin so.
    """
    from edgectl.remote.releases import device_status

    if len(text) >= _RELEASE_DIGITS:
        return text  # the device itself says whether it has it
    have = [r.release for r in device_status(managed.device, managed.handle).releases]
    found = [r for r in have if r.startswith(text)]
    if len(found) == 1:
        return found[0]
    what = "several releases begin" if found else "no release begins"
    raise UsageError(
        f"{what} with {text!r} on {managed.device.label}",
        cause=f"there are: {', '.join(have) or 'none'}",
        next_step="edgectl status",
    )


def removal_result(
    output: Output,
    managed: Managed,
    *,
    removed: tuple[str, ...],
    freed_bytes: int,
    dry_run: bool,
) -> None:
    """Prints what was removed, or would be."""
    document = {
        "device": managed.device.label,
        "removed": list(removed),
        "freed_bytes": freed_bytes,
        "dry_run": dry_run,
    }
    if removed:
        verb = "would remove" if dry_run else "removed"
        text = f"{verb} {', '.join(removed)} ({megabytes(freed_bytes)})"
    else:
        text = f"nothing to remove ({megabytes(freed_bytes)} of leftovers)"
    output.result(document, lambda console: console.print(text, markup=False, highlight=False))


def megabytes(size_bytes: int | None) -> str:
    """``12.3 MB``; ``unknown`` for ``None``."""
    return "unknown" if size_bytes is None else f"{size_bytes / 1e6:.1f} MB"
