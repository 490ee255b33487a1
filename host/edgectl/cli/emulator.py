"""``edgectl emulator``."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import click

from edgectl.cli.connecting import DEFAULT_TARGET
from edgectl.cli.console import Output
from edgectl.cli.options import output_options, target_option
from edgectl.errors import DeviceError
from edgectl.settings import load_settings

if TYPE_CHECKING:
    from edgectl.emulator.full import Machine

__all__ = ["command"]


@click.group("emulator")
def command() -> None:
    """A virtual Pi on this computer: aarch64 Debian with its own SSH server, on loopback.

    What it computes is what a Pi computes; how long it takes is not how long a Pi takes.
    """


@command.command("up")
@target_option
@click.option(
    "--full", is_flag=True, help="A whole machine: its own kernel, systemd, and a disk (slower)."
)
@click.option(
    "--memory-mb", type=click.IntRange(min=256), help="Memory of a whole machine, as on the board."
)
@click.option("--snapshot", metavar="NAME", help="Go on from there, with a whole machine.")
@output_options
def start(
    *, output: Output, target: str | None, full: bool, memory_mb: int | None, snapshot: str | None
) -> None:
    """Start it (and build it, the first time)."""
    from edgectl.emulator import up

    if (memory_mb is not None or snapshot is not None) and not full:
        raise click.UsageError("--memory-mb and --snapshot need --full")
    with output.step("start the virtual Pi"):
        info = up(
            target or DEFAULT_TARGET,
            full=full,
            memory_mb=memory_mb,
            snapshot=snapshot,
            on_step=output.say,
        )
    output.result(
        {"emulator": dataclasses.asdict(info)},
        lambda console: console.print(f"virtual {info.target} answers on 127.0.0.1:{info.port}"),
    )


@command.command("down")
@output_options
def stop(*, output: Output) -> None:
    """End it and everything that runs on it."""
    from edgectl.emulator import down

    ended = down()
    text = "the virtual Pi is down" if ended else "there was no virtual Pi"
    output.result({"was_running": ended}, lambda console: console.print(text))


@command.command("status")
@output_options
def show(*, output: Output) -> None:
    """Say whether it runs."""
    from edgectl.emulator import status

    info = status()
    document = {"emulator": None if info is None else dataclasses.asdict(info)}
    kind = "virtual" if info is None or not info.full else "whole virtual"
    text = "down" if info is None else f"{kind} {info.target} on 127.0.0.1:{info.port}"
    output.result(document, lambda console: console.print(text))


@command.command("shell")
def shell() -> None:
    """Open a shell on it."""
    from edgectl.emulator import shell_command, status

    info = status()
    if info is None:
        raise DeviceError("The virtual Pi is down.", next_step="edgectl emulator up")
    words = shell_command(info)
    os.execvp(words[0], words)  # noqa: S606 - the terminal belongs to ssh from here on


@command.command("snapshot")
@click.argument("name")
@output_options
def snapshot_(*, output: Output, name: str) -> None:
    """Keep the whole machine as it is now; `up --full --snapshot NAME` goes on from there."""
    if not name.replace("-", "").replace("_", "").isalnum():
        raise click.UsageError(f"{name!r} cannot name a snapshot (letters, digits, '-', '_')")
    _machine().save(name)
    output.result({"snapshot": name}, lambda console: console.print(f"kept {name}"))


@command.command("power-cut")
@output_options
def power_cut(*, output: Output) -> None:
    """Take the power from the whole machine; what its card had not flushed is lost in part."""
    lost, unsafe = _machine().cut_power()
    text = f"the power is gone; of {unsafe} sectors that were not flushed, {lost} are lost"
    output.result(
        {"lost_sectors": lost, "unsafe_sectors": unsafe}, lambda console: console.print(text)
    )


@command.command("fault")
@click.argument("name", required=False)
@click.option("--end", is_flag=True, help="Take it back.")
@output_options
def fault(*, output: Output, name: str | None, end: bool) -> None:
    """Bring about fault NAME on the whole machine; without a name, list them."""
    from edgectl.emulator.full import FAULTS

    if name is None:
        output.result(
            {"faults": {n: f.title for n, f in FAULTS.items()}},
            lambda console: console.print(
                "\n".join(f"{n:<14} {f.title}" for n, f in FAULTS.items()), highlight=False
            ),
        )
        return
    if name not in FAULTS:
        raise click.UsageError(f"there is no fault {name!r}; there are {', '.join(FAULTS)}")
    machine = _machine()
    (FAULTS[name].take_back if end else FAULTS[name].bring)(machine)
    output.result(
        {"fault": name, "ended": end},
        lambda console: console.print(f"{name}: {'ended' if end else FAULTS[name].title}"),
    )


def _machine() -> Machine:
    from edgectl.emulator.full import find, machine_folder

    machine = find(machine_folder(load_settings()))
    if machine is None:
        raise DeviceError(
            "There is no whole virtual machine that runs.",
            next_step="edgectl emulator up --full",
        )
    return machine
