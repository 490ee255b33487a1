"""Options that several commands share, each spelled once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from edgectl.cli.console import Output
from edgectl.pipeline import QuantizeOptions, SourceOptions

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
        envvar="EDGECTL_TARGET",
        shell_complete=_complete_target,
        help="Board to compile for (`edgectl targets`); the device's own, else rpi4.",
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
    """The model and how it is loaded; the command gets a `SourceOptions` as ``source``."""

    @click.argument("model")
    @click.option(
        "--input-spec",
        "input_specs",
        multiple=True,
        metavar="SPEC",
        help="Shape and dtype of an input, as 1x3x224x224xf32 or name=1x16xi64 (repeatable).",
    )
    @click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="[NAME=]FILE",
        help="Input to compare and time with: .npy, .npz, image, wav or text (repeatable).",
    )
    @click.option("--image-size", metavar="N|HxW", help="Size to which pictures are scaled.")
    @click.option("--mean", metavar="M[,M,M]", help="Subtracted from pixels (0 to 1) of pictures.")
    @click.option("--std", metavar="S[,S,S]", help="Pixels are divided by it after --mean.")
    @click.option("--tokenizer", metavar="NAME|FOLDER", help="Turns text inputs into ids.")
    @click.option(
        "--arch",
        "architecture",
        metavar="FACTORY",
        help="Makes the module for a file of weights: package.module:function or file.py:function, "
        "timm:NAME, transformers:FOLDER.",
    )
    @click.option("--state-key", help="Entry of a checkpoint that holds the weights.")
    @click.option(
        "--dynamic", multiple=True, metavar="NAME=LOW..HIGH", help="A dimension that may vary."
    )
    @click.option("--keep-half", is_flag=True, help="Leave half-precision weights as they are.")
    @click.option("--trust-model", is_flag=True, help="This file may run code while it is loaded.")
    @functools.wraps(function)
    def wrapped(
        model: str,
        input_specs: tuple[str, ...],
        inputs: tuple[str, ...],
        image_size: str | None,
        mean: str | None,
        std: str | None,
        tokenizer: str | None,
        architecture: str | None,
        state_key: str | None,
        dynamic: tuple[str, ...],
        keep_half: bool,
        **values: Any,
    ) -> Any:
        source = SourceOptions(
            source=model,
            input_specs=input_specs,
            inputs=inputs,
            image_size=image_size,
            mean=mean,
            std=std,
            tokenizer=tokenizer,
            architecture=architecture,
            state_key=state_key,
            dynamic=dynamic,
            keep_half=keep_half,
        )
        return function(source=source, **values)

    return wrapped


def quantize_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How the model is quantized; the command gets `QuantizeOptions` or ``None``."""

    @click.option(
        "--quantize",
        "recipe",
        metavar="RECIPE",
        help="int8, static_wi8_ai8, dynamic_wi8_ai8, weight_only_wi8 or fp16.",
    )
    @click.option(
        "--calibration",
        metavar="DATA",
        help="Typical inputs: folder of pictures, .npy, .npz, or file.py:function.",
    )
    @click.option("--evaluation", metavar="DATA", help="Inputs to judge the result by.")
    @click.option(
        "--metric",
        metavar="FILE.py:FUNCTION",
        help="Your own measure in percent, of a function that runs the model; for --max-drop too.",
    )
    @click.option("--calibration-samples", "samples", type=click.IntRange(min=1))
    @click.option(
        "--quality", type=click.Choice(["default", "best"]), default="default", show_default=True
    )
    @click.option(
        "--observer", type=click.Choice(["minmax", "moving_average", "percentile", "mse"])
    )
    @click.option(
        "--max-drop", metavar="PP", type=str, help="Percentage points of top-1 that may be lost."
    )
    @click.option("--min-sqnr", type=float, metavar="DB", help="dB that must be kept.")
    @click.option(
        "--require-int8",
        type=click.FloatRange(0, 1),
        metavar="SHARE",
        help="Share of multiply-accumulates (0 to 1) that must be integer.",
    )
    @click.option("--quantized-io", is_flag=True, help="Inputs and outputs stay int8.")
    @click.option(
        "--keep-float", multiple=True, metavar="MODULE", help="Leave this module in float32."
    )
    @functools.wraps(function)
    def wrapped(
        recipe: str | None,
        calibration: str | None,
        evaluation: str | None,
        metric: str | None,
        samples: int | None,
        quality: str,
        observer: str | None,
        max_drop: str | None,
        min_sqnr: float | None,
        require_int8: float | None,
        quantized_io: bool,
        keep_float: tuple[str, ...],
        **values: Any,
    ) -> Any:
        if recipe is None:
            given = {
                "--calibration": calibration,
                "--max-drop": max_drop,
                "--min-sqnr": min_sqnr,
                "--require-int8": require_int8,
                "--evaluation": evaluation,
                "--metric": metric,
                "--calibration-samples": samples,
                "--observer": observer,
                "--quantized-io": quantized_io or None,
                "--keep-float": keep_float or None,
            }
            for name, value in given.items():
                if value is not None:
                    raise click.UsageError(f"{name} needs --quantize RECIPE, for example int8")
            return function(quantize=None, **values)
        options = QuantizeOptions(
            recipe=recipe,
            calibration=calibration,
            evaluation=evaluation,
            samples=samples,
            quality=quality,
            observer=observer,
            max_drop=_points(max_drop),
            min_sqnr=min_sqnr,
            require_int8=require_int8,
            quantized_io=quantized_io,
            keep_float=keep_float,
            metric=metric,
        )
        return function(quantize=options, **values)

    return wrapped


def _points(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text.removesuffix("pp"))
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no number of percentage points, as 0.5pp", param_hint="--max-drop"
        ) from None


def build_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """How a model becomes a bundle."""
    for option in (
        click.option(
            "--no-kernels", is_flag=True, help="Only the compiler's own code, none of our kernels."
        ),
        click.option(
            "--flag",
            "compiler_flags",
            multiple=True,
            metavar="FLAG",
            help="One more flag for iree-compile (repeatable).",
        ),
        click.option(
            "--exact-rounding",
            is_flag=True,
            help="Round int8 as the TOSA specification does, bit for bit; slower.",
        ),
        click.option(
            "--strict-tosa",
            is_flag=True,
            help="Refuse the model if any operation must leave TOSA.",
        ),
        click.option(
            "--dialect",
            type=click.Choice(["auto", "tosa", "linalg", "stablehlo", "torch"]),
            default="auto",
            show_default=True,
            help="Dialect handed to IREE.",
        ),
        quantize_options,
        target_option,
        source_options,
    ):
        function = option(function)
    return function
