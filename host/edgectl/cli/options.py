"""Options that several commands share, each spelled once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from edgectl.cli.console import Output

__all__ = [
    "build_options",
    "device_option",
    "output_options",
    "source_options",
    "target_option",
]


def output_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--json``, ``--quiet``, ``--debug``; the command gets an `Output` as ``output``."""

    @click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
    @click.option("-q", "--quiet", is_flag=True, help="No progress.")
    @click.option("--debug", is_flag=True, help="Show tracebacks.")
    @functools.wraps(function)
    def wrapped(as_json: bool, quiet: bool, debug: bool, **values: Any) -> Any:
        del debug  # read by main(), where errors end
        return function(output=Output(as_json=as_json, quiet=quiet or as_json), **values)

    return wrapped


def _complete_target(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from edgectl_toolchains import load_target, target_names

    del ctx, param
    return [
        CompletionItem(name, help=load_target(name).title)
        for name in target_names()
        if name.startswith(incomplete)
    ]


def target_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--target``, with the names completed."""
    return click.option(
        "--target",
        default="rpi4",
        show_default=True,
        envvar="EDGECTL_TARGET",
        shell_complete=_complete_target,
        help="Board to compile for (`edgectl targets`).",
    )(function)


def device_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--device`` and how its key is judged."""
    for option in (
        click.option(
            "--accept-new-host-key",
            is_flag=True,
            help="Remember the key of a device seen for the first time.",
        ),
        click.option(
            "--ssh-timeout",
            "ssh_timeout_s",
            type=float,
            default=15.0,
            show_default=True,
            help="Seconds to wait for the device to answer at each step.",
        ),
        click.option(
            "--device", envvar="EDGECTL_DEVICE", help="Name, user@host[:port], or `emulator`."
        ),
    ):
        function = option(function)
    return function


def source_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The model and how it is loaded."""
    for option in (
        click.option(
            "--trust-model", is_flag=True, help="This file may run code while it is loaded."
        ),
        click.option(
            "--input",
            "inputs",
            multiple=True,
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="Input to compare and time with: .npy, .npz or an image (repeatable).",
        ),
        click.option(
            "--input-spec",
            "input_specs",
            multiple=True,
            metavar="SPEC",
            help="Shape and dtype of an input, as 1x3x224x224xf32 (repeatable).",
        ),
        click.argument("model"),
    ):
        function = option(function)
    return function


def build_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How a model becomes a bundle."""
    for option in (
        click.option(
            "--no-kernels",
            is_flag=True,
            help="Only the compiler's own code, none of our NEON kernels.",
        ),
        click.option(
            "--flag",
            "compiler_flags",
            multiple=True,
            metavar="FLAG",
            help="One more flag for iree-compile (repeatable).",
        ),
        click.option(
            "--strict-tosa", is_flag=True, help="Refuse the model if any operation must leave TOSA."
        ),
        click.option(
            "--dialect",
            type=click.Choice(["auto", "tosa", "linalg", "stablehlo", "torch"]),
            default="auto",
            show_default=True,
            help="Dialect handed to IREE.",
        ),
        target_option,
        source_options,
    ):
        function = option(function)
    return function
