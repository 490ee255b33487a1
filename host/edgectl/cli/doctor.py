"""``edgectl doctor``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from edgectl.cli.connecting import connected
from edgectl.cli.console import Output
from edgectl.cli.options import output_options

if TYPE_CHECKING:
    from rich.console import Console

    from edgectl.doctor import CheckResult

__all__ = ["command"]

_COLOURS = {"ok": "green", "warning": "yellow", "failed": "red", "unknown": "magenta"}


@click.command("doctor")
@click.argument("device", required=False)
@click.option("--target", default=None, help="Also check that code for this board runs there.")
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
@output_options
def command(
    *,
    output: Output,
    device: str | None,
    target: str | None,
    accept_new_host_key: bool,
    ssh_timeout_s: float,
) -> None:
    """Check this computer and, if it is named, DEVICE; print a fix for whatever is wrong.

    Nothing is changed. Ends in 3 when this computer and in 7 when the device cannot do its part.
    """
    from edgectl.codegen import load_target_or_fail
    from edgectl.doctor import run_checks
    from edgectl.inventory import Inventory
    from edgectl.remote.facts import gather_facts
    from edgectl.settings import load_settings

    facts = None
    if device is not None:
        if target is None:
            entry = Inventory.of(load_settings()).find(device)
            target = entry.target if entry is not None else None
        with connected(
            device,
            output,
            accept_new_host_key=accept_new_host_key,
            ssh_timeout_s=ssh_timeout_s,
            target=target,
        ) as remote:
            facts = gather_facts(remote)
    results = run_checks(facts=facts, target=load_target_or_fail(target) if target else None)
    output.result(
        {"checks": [dataclasses.asdict(result) for result in results]},
        lambda console: _draw(console, results),
    )
    failed = {result.where for result in results if result.status == "failed"}
    if failed:
        raise SystemExit(3 if "host" in failed else 7)


def _draw(console: Console, results: tuple[CheckResult, ...]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("", "check", "verdict", "what was found, and how to mend it")
    for result in results:
        said = Text(result.message)
        if result.fix is not None:
            said.append(f"\nfix: {result.fix}", style="bold")
        verdict = Text(str(result.status), style=_COLOURS[result.status])
        table.add_row(result.where, result.name, verdict, said)
    console.print(table)
