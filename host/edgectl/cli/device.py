"""``edgectl device``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from edgectl.cli.connecting import connected
from edgectl.cli.console import Output
from edgectl.cli.options import output_options, target_option
from edgectl.settings import load_settings

if TYPE_CHECKING:
    from rich.console import Console

    from edgectl.inventory import Inventory

__all__ = ["command"]


@click.group("device")
def command() -> None:
    """Add, list, remove and look at devices."""


def _inventory() -> Inventory:
    from edgectl.inventory import Inventory

    return Inventory.of(load_settings())


@command.command("add")
@click.argument("name")
@click.argument("destination")
@click.option("--target", default=None, help="What models for it are compiled for.")
@click.option("--default", "as_default", is_flag=True, help="Use it when --device is not given.")
@click.option("--replace", is_flag=True, help="Overwrite a device of that name.")
@output_options
def add(
    *,
    output: Output,
    name: str,
    destination: str,
    target: str | None,
    as_default: bool,
    replace: bool,
) -> None:
    """Give the device at DESTINATION (user@host[:port] or an ssh alias) a NAME."""
    from edgectl.codegen import load_target_or_fail
    from edgectl.remote.destination import parse_destination

    parse_destination(destination)
    if target is not None:
        load_target_or_fail(target)
    entry = _inventory().add(name, destination, target=target, default=as_default, replace=replace)
    note = " (default)" if entry.is_default else ""
    output.result(
        {"device": dataclasses.asdict(entry)},
        lambda console: console.print(f"{entry.name}: {entry.destination}{note}", markup=False),
    )


@command.command("list")
@output_options
def list_(*, output: Output) -> None:
    """Show the devices there are."""
    entries = _inventory().entries()

    def render(console: Console) -> None:
        from rich.table import Table

        if not entries:
            console.print("no device; add one: edgectl device add NAME user@host", markup=False)
            return
        table = Table("name", "destination", "target", "default")
        for entry in entries:
            mark = "yes" if entry.is_default else ""
            table.add_row(entry.name, entry.destination, entry.target or "", mark)
        console.print(table)

    output.result({"devices": [dataclasses.asdict(entry) for entry in entries]}, render)


@command.command("remove")
@click.argument("name")
@output_options
def remove(*, output: Output, name: str) -> None:
    """Forget a device; nothing is changed on it."""
    _inventory().remove(name)
    output.result({"removed": name}, lambda console: console.print(f"removed {name}", markup=False))


@command.command("default")
@click.argument("name")
@output_options
def default(*, output: Output, name: str) -> None:
    """Use the device NAME when --device is not given."""
    _inventory().set_default(name)
    output.result(
        {"default": name}, lambda console: console.print(f"default: {name}", markup=False)
    )


@command.command("facts")
@click.argument("device", required=False)
@click.option(
    "--accept-new-host-key",
    is_flag=True,
    help="Remember the key of a device seen for the first time.",
)
@click.option(
    "--ssh-timeout",
    "ssh_timeout_s",
    type=float,
    default=15.0,
    show_default=True,
    help="Seconds to wait for the device to answer at each step.",
)
@target_option
@output_options
def facts(
    *,
    output: Output,
    device: str | None,
    accept_new_host_key: bool,
    ssh_timeout_s: float,
    target: str | None,
) -> None:
    """Show what DEVICE is: board, core, system, Python, disk, clock, throttling."""
    from edgectl.remote.facts import gather_facts
    from edgectl.remote.facts_summary import summarize
    from edgectl_runner.contract import to_document

    with connected(
        device,
        output,
        accept_new_host_key=accept_new_host_key,
        ssh_timeout_s=ssh_timeout_s,
        target=target,
    ) as remote:
        found = gather_facts(remote)

    def render(console: Console) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(show_header=False)
        for name, value in summarize(found):
            table.add_row(name, Text(value))
        console.print(table)

    output.result({"facts": to_document(found)}, render)
