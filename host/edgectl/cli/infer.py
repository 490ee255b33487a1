"""``edgectl infer``."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgectl.cli.console import Output
from edgectl.cli.options import output_options
from edgectl.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

__all__ = ["command"]

SHOWN_VALUES = 8


@click.command("infer")
@click.option("--url", required=True, envvar="EDGECTL_SERVICE_URL", help="As http://HOST:PORT.")
@click.option("--model", metavar="NAME", help="Which one, where several are served.")
@click.option("--version", metavar="N", help="The highest one unless it is said.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="[NAME=]FILE",
    help=".npy, .npz, image or wav (repeatable).",
)
@click.option("--image-size", metavar="N|HxW", help="Size to which pictures are scaled.")
@click.option("--mean", metavar="M[,M,M]", help="Subtracted from pixels (0 to 1) of pictures.")
@click.option("--std", metavar="S[,S,S]", help="Pixels are divided by it after --mean.")
@click.option("--token", envvar="EDGECTL_SERVICE_TOKEN", help="Of the service.")
@click.option(
    "--certificate",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="PEM file to trust, for a service with a certificate of its own making.",
)
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=60.0)
@click.option(
    "--output",
    "outputs_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Save the outputs to this .npz file.",
)
@click.option(
    "--labels",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="One class name per line.",
)
@click.option("--top", type=click.IntRange(min=1), default=5, show_default=True)
@output_options
def command(
    *,
    output: Output,
    url: str,
    model: str | None,
    version: str | None,
    inputs: tuple[str, ...],
    image_size: str | None,
    mean: str | None,
    std: str | None,
    token: str | None,
    certificate: Path | None,
    timeout_s: float,
    outputs_file: Path | None,
    labels: Path | None,
    top: int,
) -> None:
    """Ask a service for one inference and show its outputs."""
    from edgectl.serving.client import ServiceClient
    from edgectl.serving.inputs import inputs_for
    from edgectl.serving.requesting import only_model
    from edgectl.sources import parse_image_options

    images = parse_image_options(image_size, mean, std)
    with ServiceClient(url, token=token, timeout_s=timeout_s, certificate=certificate) as client:
        name = model or only_model(client)
        metadata = client.metadata(name, version)
        arrays = inputs_for(metadata["inputs"], inputs, images=images)
        outputs = client.infer(name, arrays, version=version)
    if outputs_file is not None:
        _save(outputs_file, outputs)
    names = labels.read_text(encoding="utf-8").splitlines() if labels is not None else []
    document = {
        "url": url,
        "model": name,
        "outputs": {key: _described(array, names, top) for key, array in outputs.items()},
    }
    output.result(document, lambda console: _print(console, outputs, names, top))


def _save(path: Path, outputs: dict[str, np.ndarray]) -> None:
    import numpy as np

    buffer = io.BytesIO()
    np.savez(buffer, **outputs)  # type: ignore[arg-type]
    try:
        path.write_bytes(buffer.getvalue())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _best(array: np.ndarray, names: list[str], top: int) -> list[dict[str, Any]]:
    """The largest elements of an output that looks like scores of classes: one row, real."""
    import numpy as np

    if array.dtype.kind == "c" or array.size < 2 or array.size != array.shape[-1]:
        return []
    flat = array.reshape(-1).astype(np.float64)
    order = np.argsort(-flat, kind="stable")[:top]
    return [
        {
            "index": int(i),
            "value": float(flat[i]) if np.isfinite(flat[i]) else None,
            "label": names[i] if i < len(names) else None,
        }
        for i in order
    ]


def _described(array: np.ndarray, names: list[str], top: int) -> dict[str, Any]:
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "top": _best(array, names, top),
    }


def _print(console: Console, outputs: dict[str, np.ndarray], names: list[str], top: int) -> None:
    for name, array in outputs.items():
        shape = "x".join(map(str, array.shape)) or "scalar"
        console.print(f"{name}: {shape} {array.dtype}", markup=False, highlight=False)
        best = _best(array, names, top)
        for entry in best:
            label = f"  {entry['label']}" if entry["label"] else ""
            console.print(
                f"  {entry['index']:>6}  {_number(entry['value'])}{label}",
                markup=False,
                highlight=False,
            )
        if not best:
            values = ", ".join(f"{v:.6g}" for v in array.reshape(-1)[:SHOWN_VALUES].tolist())
            more = ", ..." if array.size > SHOWN_VALUES else ""
            console.print(f"  {values}{more}", markup=False, highlight=False)


def _number(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.6g}"
