"""``edgectl uninstall``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import click

from edgectl.cli.console import Output
from edgectl.cli.operating import (
    Managed,
    dry_run_option,
    full_release,
    managed_device_options,
    removal_result,
)
from edgectl.errors import DeviceError, UsageError

__all__ = ["command"]


@click.command("uninstall")
@click.argument("release", required=False)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@dry_run_option
@managed_device_options
def command(
    *,
    output: Output,
    managed: Callable[[], AbstractContextManager[Managed]],
    release: str | None,
    yes: bool,
    dry_run: bool,
) -> None:
    """Remove everything of edgectl from a device, or only RELEASE.

    Without RELEASE nothing is left behind: a service is ended and its unit removed; models,
    runner, packages, keys and history all lie in one folder, and that folder goes.
    """
    from edgectl.remote.releases import uninstall

    with managed() as found:
        wanted = None if release is None else full_release(found, release)
        if wanted is None and not (yes or dry_run):
            _ask(output, found)
        if wanted is None and not dry_run:
            _end_service(found)
        removal = uninstall(found.device, found.handle, release=wanted, dry_run=dry_run)
    removal_result(
        output,
        found,
        removed=removal.removed,
        freed_bytes=removal.freed_bytes,
        dry_run=dry_run,
    )


def _end_service(found: Managed) -> None:
    from edgectl.serving.control import stop_service

    try:
        stop_service(found.device, found.handle)
    except DeviceError as error:
        if "too old" not in error.message:  # such a runner has never started one
            raise


def _ask(output: Output, found: Managed) -> None:
    if output.as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"removing everything of edgectl from {found.device.label} was not confirmed",
            cause="there is nobody to ask, and --yes was not given",
            next_step="edgectl uninstall --yes, or --dry-run to see what it would remove",
        )
    question = f"Remove {found.handle.root} with every model from {found.device.label}?"
    click.confirm(question, abort=True, err=True)
