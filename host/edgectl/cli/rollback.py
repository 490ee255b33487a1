"""``edgectl rollback``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import click

from edgectl.cli.console import Output
from edgectl.cli.operating import Managed, dry_run_option, full_release, managed_device_options
from edgectl.errors import DeviceError

__all__ = ["command"]


@click.command("rollback")
@click.argument("release", required=False)
@dry_run_option
@managed_device_options
def command(
    *,
    output: Output,
    managed: Callable[[], AbstractContextManager[Managed]],
    release: str | None,
    dry_run: bool,
) -> None:
    """Go back to the previous release, or to RELEASE (the first digits are enough).

    Nothing is transferred. Every file of the release is digested again before it becomes current.
    """
    from edgectl.remote.releases import device_status, rollback, verify_release

    with managed() as found:
        wanted = None if release is None else full_release(found, release)
        if dry_run:
            status = device_status(found.device, found.handle)
            wanted, before = wanted or status.previous, status.current
            if wanted is None:
                raise DeviceError(
                    f"{found.device.label}: there is no previous release to go back to",
                    next_step="see what is installed with 'edgectl status'",
                )
            verify_release(found.device, found.handle, release=wanted)
            current = wanted
        else:
            gone_back = rollback(found.device, found.handle, release=wanted)
            current, before = gone_back.current, gone_back.before
    document = {
        "device": found.device.label,
        "current": current,
        "before": before,
        "dry_run": dry_run,
    }
    verb = "would become current" if dry_run else "is current"
    text = f"{current} {verb} on {found.device.label} (before: {before or 'none'})"
    output.result(document, lambda console: console.print(text, markup=False, highlight=False))
