"""``edgectl history``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from edgectl.cli.console import Output
from edgectl.cli.operating import Managed, managed_device_options

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["command"]

_OWN_COLUMNS = ("event", "release", "who", "wall", "clock_synced", "boot_id", "monotonic_s")


@click.command("history")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="How many records, the newest.",
)
@managed_device_options
def command(
    *, output: Output, managed: Callable[[], AbstractContextManager[Managed]], last: int
) -> None:
    """Show what happened to a device: installs, switches, rollbacks, and by whom."""
    from edgectl.remote.releases import history

    with managed() as found:
        records = history(found.device, found.handle, last=last)
    document = {"device": found.device.label, "records": [dict(r) for r in records]}
    output.result(document, lambda console: _print(console, found.device.label, records))


def _print(console: Console, label: str, records: tuple[Mapping[str, Any], ...]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("time (UTC)", "event", "release", "who", "details", title=label)
    for record in records:
        details = {k: v for k, v in record.items() if k not in _OWN_COLUMNS and v is not None}
        cells = (
            _time(record),
            str(record.get("event", "")),
            str(record.get("release") or ""),
            str(record.get("who", "")),
            ", ".join(f"{name}: {value}" for name, value in details.items()),
        )
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    if any(not record.get("clock_synced") for record in records):
        console.print("? = the device's clock was not set by the network then", highlight=False)


def _time(record: Mapping[str, Any]) -> str:
    time = str(record.get("wall", "")).replace("T", " ").removesuffix("Z")
    return time if record.get("clock_synced") else f"{time} ?"
