"""MODEL or BUNDLE on the command line: a bundle is read, a model is compiled into one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgectl.bundle import read_bundle
from edgectl.cli.building import build_from_options
from edgectl.cli.console import Output

if TYPE_CHECKING:
    from edgectl.records import Bundle

__all__ = ["bundle_of"]


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
