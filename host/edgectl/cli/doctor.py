"""``edgectl doctor``."""

from __future__ import annotations

import click

from edgectl.cli.connecting import connected
from edgectl.cli.console import Output
from edgectl.cli.options import device_option, output_options, target_option

__all__ = ["command"]
