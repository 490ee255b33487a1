"""MODEL or BUNDLE on the command line: a bundle is read, a model is compiled into one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgectl.bundle import read_bundle
from edgectl.cli.building import build_from_options
from edgectl.cli.connecting import connected, target_of
from edgectl.cli.console import Output

if TYPE_CHECKING:
    from edgectl.records import Bundle
    from edgectl.remote import Device

__all__ = ["bundle_and_device", "bundle_of"]


def bundle_of(folder: Path, output: Output, options: dict[str, Any]) -> Bundle:
    """The bundle that MODEL names, or one made of it in ``folder``.

    Args:
        folder: where a bundle may be written.
        output: told about the steps.
        options: what `edgectl.cli.options.build_options` gave the command.
    """
    from edgectl.sources import is_bundle

    path = options["source"].source
    if is_bundle(path):
        return read_bundle(Path(path))
    bundle, _ = build_from_options(folder / "model.edgectl", output, **options)
    return bundle


@contextmanager
def bundle_and_device(
    output: Output,
    options: dict[str, Any],
    *,
    device: str | None,
    accept_new_host_key: bool,
    ssh_timeout_s: float,
) -> Iterator[tuple[Bundle, Device]]:
    """MODEL as a bundle for the device, and the device; both as long as the block lasts.

    The device comes first: a wrong address should not cost a compilation. ``options`` are those of
    `edgectl.cli.options.build_options`; what they leave open of the target is settled in them.
    """
    options["target"] = target_of(options["target"], device)
    with (
        tempfile.TemporaryDirectory(prefix="edgectl-") as folder,
        connected(
            device,
            output,
            accept_new_host_key=accept_new_host_key,
            ssh_timeout_s=ssh_timeout_s,
            target=options["target"],
        ) as remote,
    ):
        yield bundle_of(Path(folder), output, options), remote
