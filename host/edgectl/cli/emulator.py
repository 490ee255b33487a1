"""``edgectl emulator``."""

from __future__ import annotations

import dataclasses
import os

import click

from edgectl.cli.connecting import DEFAULT_TARGET
from edgectl.cli.console import Output
from edgectl.cli.options import output_options, target_option
from edgectl.errors import DeviceError

__all__ = ["command"]


@click.group("emulator")
def command() -> None:
    """A virtual Pi on this computer: aarch64 Debian with its own SSH server, on loopback.

    What it computes is what a Pi computes; how long it takes is not how long a Pi takes.
    """


@command.command("up")
@target_option
@output_options
def start(*, output: Output, target: str | None) -> None:
    """Start it (and build it, the first time)."""
    from edgectl.emulator import up

    with output.step("start the virtual Pi"):
        info = up(target or DEFAULT_TARGET, on_step=output.say)
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
    text = "down" if info is None else f"virtual {info.target} on 127.0.0.1:{info.port}"
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
