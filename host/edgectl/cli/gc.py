"""``edgectl gc``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import click

from edgectl.cli.console import Output
from edgectl.cli.operating import (
    Managed,
    dry_run_option,
    managed_device_options,
    removal_result,
)

__all__ = ["command"]


@click.command("gc")
@dry_run_option
@managed_device_options
def command(
    *, output: Output, managed: Callable[[], AbstractContextManager[Managed]], dry_run: bool
) -> None:
    """Remove releases that are neither current, previous nor pinned, and what only they used.

    Versions of the runner and its packages that nothing uses go as well.
    """
    from edgectl.remote.releases import collect_garbage

    with managed() as found:
        removal = collect_garbage(found.device, found.handle, dry_run=dry_run)
    removal_result(
        output,
        found,
        removed=removal.removed,
        freed_bytes=removal.freed_bytes,
        dry_run=dry_run,
    )
