"""``edgectl status``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import click

from edgectl.cli.console import Output
from edgectl.cli.operating import Managed, managed_device_options, megabytes

if TYPE_CHECKING:
    from rich.console import Console

    from edgectl.remote.releases import DeviceStatus

__all__ = ["command"]


@click.command("status")
@managed_device_options
def command(*, output: Output, managed: Callable[[], AbstractContextManager[Managed]]) -> None:
    """Show what is installed on a device, what is current, and who is at work there."""
    from edgectl.remote.releases import device_status

    with managed() as found:
        status = device_status(found.device, found.handle)
        document = {
            "device": found.device.label,
            "emulated": found.device.emulated,
            "status": dataclasses.asdict(status),
        }
    output.result(document, lambda console: _print(console, found.device.label, status))


def _print(console: Console, label: str, status: DeviceStatus) -> None:
    from rich.table import Table

    title = f"{label}: runner {status.runner_version} in {status.root}"
    table = Table("release", "", "model", "target", "precision", "number", "size", title=title)
    for release in status.releases:
        marks = {
            "current": status.current == release.release,
            "previous": status.previous == release.release,
            "on probation": status.on_probation == release.release,
            "pinned": release.pinned,
        }
        table.add_row(
            release.release,
            ", ".join(mark for mark, holds in marks.items() if holds),
            release.name,
            release.target,
            release.precision,
            str(release.sequence),
            megabytes(release.size_bytes),
        )
    console.print(table)
    console.print(f"free on the card: {megabytes(status.disk_free_bytes)}", highlight=False)
    if status.locked_by is not None:
        console.print(f"at work now: {status.locked_by}", markup=False, highlight=False)
