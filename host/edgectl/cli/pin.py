"""``edgectl pin`` and ``edgectl unpin``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import click

from edgectl.cli.console import Output
from edgectl.cli.operating import Managed, dry_run_option, full_release, managed_device_options

__all__ = ["command", "unpin"]


@click.command("pin")
@click.argument("release")
@dry_run_option
@managed_device_options
def command(
    *,
    output: Output,
    managed: Callable[[], AbstractContextManager[Managed]],
    release: str,
    dry_run: bool,
) -> None:
    """Keep RELEASE (the first digits are enough) from ever being collected."""
    _set(output, managed, release, pinned=True, dry_run=dry_run)


@click.command("unpin")
@click.argument("release")
@dry_run_option
@managed_device_options
def unpin(
    *,
    output: Output,
    managed: Callable[[], AbstractContextManager[Managed]],
    release: str,
    dry_run: bool,
) -> None:
    """Let RELEASE (the first digits are enough) be collected again."""
    _set(output, managed, release, pinned=False, dry_run=dry_run)


def _set(
    output: Output,
    managed: Callable[[], AbstractContextManager[Managed]],
    release: str,
    *,
    pinned: bool,
    dry_run: bool,
) -> None:
    from edgectl.remote.releases import pin_release, verify_release

    with managed() as found:
        wanted = full_release(found, release)
        if dry_run:
            verify_release(found.device, found.handle, release=wanted)
        else:
            pin_release(found.device, found.handle, wanted, pinned=pinned)
    document = {
        "device": found.device.label,
        "release": wanted,
        "pinned": pinned,
        "dry_run": dry_run,
    }
    state = "pinned" if pinned else "no longer pinned"
    text = f"{wanted} {'would be' if dry_run else 'is'} {state} on {found.device.label}"
    output.result(document, lambda console: console.print(text, markup=False, highlight=False))
