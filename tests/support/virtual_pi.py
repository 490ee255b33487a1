"""The virtual Pi of the tests: built and started once for all of them, ended with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgectl.emulator import connect_options, up
from edgectl.remote import Device
from edgectl.remote.ssh import connect
from edgectl.settings import load_settings
from support.command import Edgectl


@contextmanager
def running_virtual_pi(home: Path) -> Iterator[Edgectl]:
    """``edgectl`` whose ``--device emulator`` is up."""
    command = Edgectl(home=home)
    command("emulator", "up", "-q").expect(0)
    try:
        yield command
    finally:
        command("emulator", "down", "-q").expect(0)


@contextmanager
def connection(home: Path) -> Iterator[Device]:
    """A connection to it."""
    settings = load_settings({"EDGECTL_HOME": str(home)})
    destination, options = connect_options(up("rpi4", settings=settings), settings=settings)
    device = connect(destination, options=options)
    try:
        yield device
    finally:
        device.close()
