"""From ``--device`` to an open device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from edgectl.cli.console import Output
from edgectl.settings import load_settings

if TYPE_CHECKING:
    from edgectl.remote import Device

__all__ = ["DEFAULT_TARGET", "EMULATOR", "connected", "connector", "target_of"]

EMULATOR = "emulator"
DEFAULT_TARGET = "rpi4"


def target_of(target: str | None, device: str | None) -> str:
    """The target asked for, else the one that the device was added with, else the usual one."""
    from edgectl.inventory import resolve

    if target is not None:
        return target
    settings = load_settings()
    entry = resolve(device or settings.device, settings=settings)
    if entry.name == EMULATOR:
        from edgectl.emulator import status

        running = status(settings=settings)
        return running.target if running is not None else DEFAULT_TARGET
    return entry.target or DEFAULT_TARGET


@contextmanager
def connected(
    name: str | None,
    output: Output,
    *,
    accept_new_host_key: bool = False,
    ssh_timeout_s: float = 15.0,
    target: str | None = None,
) -> Iterator[Device]:
    """Opens the device of that name, address, or the default one; closes it at the end.

    ``emulator`` starts the virtual Pi if it is not up; without a ``target`` it may be any board.
    """
    device = connector(
        name,
        output,
        accept_new_host_key=accept_new_host_key,
        ssh_timeout_s=ssh_timeout_s,
        target=target,
    )()
    try:
        yield device
    finally:
        device.close()


def connector(
    name: str | None,
    output: Output,
    *,
    accept_new_host_key: bool = False,
    ssh_timeout_s: float = 15.0,
    target: str | None = None,
) -> Callable[[], Device]:
    """What opens that device, as often as it is called (after a break, once more)."""
    from edgectl.inventory import resolve
    from edgectl.remote.ssh import connect
    from edgectl.remote.ssh_options import SshOptions

    settings = load_settings()
    entry = resolve(name or settings.device, settings=settings)
    if entry.name == EMULATOR:
        return lambda: _emulator(output, target)

    def ask(prompt: str) -> str | None:
        with output.paused():
            return _ask(prompt)

    interactive = sys.stdin.isatty() and sys.stderr.isatty() and not output.as_json
    options = SshOptions(
        accept_new_host_key=accept_new_host_key,
        ask=ask if interactive else None,
        warn=lambda line: output.say(f"warning: {line}"),
        connect_timeout_s=ssh_timeout_s,
        banner_timeout_s=ssh_timeout_s,
        auth_timeout_s=max(ssh_timeout_s, 30.0),
        known_hosts_file=settings.config_dir / "known_hosts",
    )
    return lambda: connect(entry.destination, options=options)


def _emulator(output: Output, target: str | None) -> Device:
    from edgectl.emulator import connect_options, status, up
    from edgectl.remote.ssh import connect

    with output.step("start the virtual Pi"):
        running = status() if target is None else None
        info = running or up(target=target or DEFAULT_TARGET)
    destination, options = connect_options(info)
    return connect(destination, options=options)


def _ask(prompt: str) -> str | None:
    try:
        answer: str = click.prompt(
            prompt, hide_input=True, err=True, default="", show_default=False
        )
    except click.Abort:
        return None
    return answer or None
