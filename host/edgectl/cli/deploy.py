"""``edgectl deploy``."""

from __future__ import annotations

import dataclasses
import io
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgectl.cli.accuracy import print_quantization
from edgectl.cli.building import hooks_of
from edgectl.cli.bundles import bundle_of
from edgectl.cli.connecting import connector, target_of
from edgectl.cli.console import Output
from edgectl.cli.describe import spec_text
from edgectl.cli.documents import DeploymentDocument
from edgectl.cli.fleet import deploy_to_each, devices_of, sending_words, timing_words
from edgectl.cli.options import build_options, device_option, output_options
from edgectl.cli.running import print_report, timing_options
from edgectl.deployment import Deployment, DeploymentPlan, Timing, deploy, mismatch, plan_deployment
from edgectl.device_accuracy import quantization_report
from edgectl.errors import OutputMismatchError, UsageError
from edgectl.installing import Sending
from edgectl.remote.busy import check_free
from edgectl.settings import load_settings
from edgectl_runner.contract import to_document

if TYPE_CHECKING:
    from rich.console import Console

    from edgectl.records import Bundle

__all__ = ["command"]


@click.command("deploy")
@build_options
@device_option
@timing_options
@click.option(
    "--output",
    "outputs",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Save the device's outputs to this .npz file.",
)
@click.option(
    "--labels",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="One class name per line, to print the best five.",
)
@click.option(
    "--dry-run", is_flag=True, help="Say what would be sent; change nothing on the device."
)
@click.option(
    "--bandwidth-limit",
    "bytes_per_s",
    type=click.FloatRange(min=1),
    metavar="BYTES",
    help="Send no faster than this many bytes a second.",
)
@click.option(
    "--allow-older", is_flag=True, help="Take a bundle with a lower sequence number than before."
)
@output_options
def command(
    *,
    output: Output,
    device: str | None,
    accept_new_host_key: bool,
    ssh_timeout_s: float,
    timing: Timing,
    outputs: Path | None,
    labels: Path | None,
    dry_run: bool,
    bytes_per_s: float | None,
    allow_older: bool,
    **options: Any,
) -> int:
    """Compile MODEL, push it to a Pi, check its outputs against PyTorch, and time it.

    MODEL is a model file, a bundle (.edgectl), or a Python factory as package.module:function or
    file.py:function. Several devices, apart by commas, get it side by side.
    """
    settings = load_settings()
    names = devices_of(device)
    if len(names) > 1:
        if outputs is not None or labels is not None:
            raise UsageError("--output and --labels are for one device, not for several.")
        words = timing_words(timing) + sending_words(
            accept_new_host_key=accept_new_host_key,
            ssh_timeout_s=ssh_timeout_s,
            dry_run=dry_run,
            bytes_per_s=bytes_per_s,
            allow_older=allow_older,
        )
        return _deploy_to_each(names, words, output, options)
    options["target"] = target_of(options["target"], device)
    reconnect = connector(
        device,
        output,
        accept_new_host_key=accept_new_host_key,
        ssh_timeout_s=ssh_timeout_s,
        target=options["target"],
    )
    sending = Sending(
        bytes_per_s=bytes_per_s,
        allow_downgrade=allow_older,
        reconnect=reconnect,
        notify=output.say,
    )
    with (
        tempfile.TemporaryDirectory(prefix="edgectl-") as folder,
        # The device first: a wrong address should not cost a compilation.
        closing(reconnect()) as remote,
    ):
        check_free(remote)
        bundle = bundle_of(Path(folder), output, options)
        if dry_run:
            plan = plan_deployment(bundle, remote, settings=settings)
            output.result({"plan": dataclasses.asdict(plan)}, lambda c: _print_plan(c, plan))
            return 0
        done = deploy(
            bundle,
            remote,
            timing=timing,
            sending=sending,
            settings=settings,
            hooks=hooks_of(output),
        )
        quantization = quantization_report(bundle)
    if outputs is not None and done.outputs is not None:
        _save(outputs, done.outputs)
    error = mismatch(done.report)
    if error is None or not output.as_json:
        output.result(
            _document(bundle, done, error),
            lambda console: _print(console, bundle, done, labels, quantization),
        )
    if error is not None:
        raise error
    return 0


def _deploy_to_each(
    names: tuple[str, ...], words: list[str], output: Output, options: dict[str, Any]
) -> int:
    """Builds once for each target among the devices, and deploys side by side."""
    targets = {name: target_of(options["target"], name) for name in names}
    with tempfile.TemporaryDirectory(prefix="edgectl-") as folder:
        paths: dict[str, Path] = {}
        for target in dict.fromkeys(targets.values()):
            place = Path(folder) / target
            place.mkdir()
            paths[target] = bundle_of(place, output, {**options, "target": target}).path
        bundles = {name: paths[target] for name, target in targets.items()}
        return deploy_to_each(bundles, words, output)


def _print_plan(console: Console, plan: DeploymentPlan) -> None:
    console.print(
        f"{plan.device} would get {plan.runtime_bytes:,} bytes of the runner and "
        f"{plan.payload_bytes:,} bytes of the model; nothing was changed",
        highlight=False,
    )
    if plan.already_current:
        console.print(f"release {plan.release} is current there already", highlight=False)
    for file in plan.files:
        console.print(f"would write {file}", highlight=False)


def _save(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error


def _document(
    bundle: Bundle, done: Deployment, error: OutputMismatchError | None
) -> dict[str, Any]:
    document = DeploymentDocument(
        model=bundle.manifest.name,
        target=bundle.manifest.target,
        device=done.device,
        emulated=done.emulated,
        release=done.release,
        payload_bytes_sent=done.payload_bytes,
        runtime_bytes_sent=done.runtime_bytes,
        outputs_match=error is None,
        report=done.report,
        accuracy=None if done.accuracy is None else dict(done.accuracy),
    )
    return to_document(document)


def _print(
    console: Console,
    bundle: Bundle,
    done: Deployment,
    labels: Path | None,
    quantization: dict[str, Any] | None,
) -> None:
    sent = done.payload_bytes + done.runtime_bytes
    console.print(
        f"{bundle.manifest.name} on {done.device}: release {done.release}, {sent:,} bytes sent",
        highlight=False,
    )
    reference = "eager PyTorch" if quantization is None else "the quantized model in PyTorch"
    print_report(console, done.report, emulated=done.emulated, reference=reference)
    if quantization is not None:
        print_quantization(console, quantization)
    if done.accuracy is not None:
        console.print(done.accuracy["verdict"], highlight=False)
    if done.outputs is not None:
        _print_outputs(console, done.outputs, labels)


def _print_outputs(console: Console, data: bytes, labels: Path | None) -> None:
    import numpy as np
    from rich.table import Table

    from edgectl_runner.contract import TensorSpec

    names = labels.read_text(encoding="utf-8").splitlines() if labels is not None else []
    table = Table("output", "shape and dtype", "values", title="Outputs")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        for name in arrays.files:
            value = arrays[name]
            spec = TensorSpec(name=name, shape=value.shape, dtype=str(value.dtype))
            row = value.reshape(-1)
            if names and row.size == len(names):
                best = np.argsort(-row.astype(np.float64))[:5]
                text = ", ".join(f"{names[i]} ({row[i]:.3g})" for i in best)
            else:
                text = np.array2string(row[:6], precision=4, separator=", ").strip("[]")
                text += ", ..." if row.size > 6 else ""
            table.add_row(name, spec_text(spec), text)
    console.print(table)
