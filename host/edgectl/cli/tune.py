"""``edgectl tune``."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgectl.bundle import BUNDLE_SUFFIX
from edgectl.cli.building import build_options_of, hooks_of, trust_of
from edgectl.cli.connecting import DEFAULT_TARGET, connected, target_of
from edgectl.cli.console import Output
from edgectl.cli.options import build_options, device_option, output_options
from edgectl.errors import UsageError
from edgectl.settings import load_settings
from edgectl_runner.contract import to_document

if TYPE_CHECKING:
    from rich.console import Console

    from edgectl.pipeline import BuildOptions
    from edgectl.settings import Settings
    from edgectl.tuning import Evaluator, Trial, TuneResult

__all__ = ["command"]


@click.command("tune")
@build_options
@device_option
@click.option(
    "--by",
    type=click.Choice(["estimate", "device"]),
    help="How a choice is judged (default: on the device if one is named, else by estimate).",
)
@click.option(
    "--precisions",
    metavar="RECIPES",
    help="Recipes whose numbers you accept, to be tried too, as fp16,int8 (int8 needs "
    "--quantize int8 --calibration DATA).",
)
@click.option("--threads", metavar="NUMBERS", help="Numbers of threads to try, as 1,2,4.")
@click.option(
    "--iterations", type=click.IntRange(min=1), default=20, show_default=True, help="Timed calls."
)
@click.option("--budget", type=click.IntRange(min=1), help="Evaluate no more choices than this.")
@click.option(
    "--journal",
    type=click.Path(path_type=Path, dir_okay=False),
    help="What was tried; an interrupted search goes on from it (default: one for each model).",
)
@click.option("--fresh", is_flag=True, help="Forget what was tried before.")
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Bundle to write (default: MODEL-TARGET-tuned.edgectl here).",
)
@output_options
def command(
    *,
    output: Output,
    device: str | None,
    accept_new_host_key: bool,
    ssh_timeout_s: float,
    by: str | None,
    precisions: str | None,
    threads: str | None,
    iterations: int,
    budget: int | None,
    journal: Path | None,
    fresh: bool,
    path: Path | None,
    **options: Any,
) -> None:
    """Look for the compile choices that make MODEL quickest on a board.

    Tries kernels, compiler flags, tiles, and where asked precisions and threads. A choice with
    wrong outputs is out. The bundle that is written is never slower than the default, as judged:
    `compile` or `deploy` it like any other.
    """
    from edgectl.sources import is_bundle
    from edgectl.tuning import Journal, Workshop, tune

    settings = load_settings()
    by = by or ("device" if device is not None else "estimate")
    if by == "estimate" and threads is not None:
        raise click.UsageError("--threads needs a device: an estimate is of one core")
    source = options["source"].source
    if is_bundle(source):
        raise UsageError(
            f"{source} is a bundle; its choices were made when it was compiled.",
            next_step="edgectl tune MODEL, with the model that it was made of",
        )
    target = options["target"]
    target = target_of(target, device) if by == "device" else target or DEFAULT_TARGET
    build = build_options_of(**{**options, "target": target})
    file = journal or _journal_file(settings, build)
    if fresh:
        file.unlink(missing_ok=True)
    result_path = path or Path(f"{Path(source.split(':')[0]).stem}-{target}-tuned{BUNDLE_SUFFIX}")
    with (
        tempfile.TemporaryDirectory(prefix="edgectl-tune-") as folder,
        _evaluator(
            by,
            output,
            settings,
            target,
            iterations,
            device=device,
            accept_new_host_key=accept_new_host_key,
            ssh_timeout_s=ssh_timeout_s,
        ) as evaluator,
    ):
        workshop = Workshop(
            build,
            Path(folder),
            trust=trust_of(output, trusted=options["trust_model"]),
            settings=settings,
            hooks=hooks_of(output),
        )
        result = tune(
            workshop,
            evaluator,
            Journal(file),
            precisions=tuple(precisions.split(",")) if precisions else (),
            threads=_numbers(threads),
            budget=budget,
            on_trial=lambda trial: output.say(_line(trial, evaluator.unit)),
        )
        _keep(result.bundle.path, result_path)
    document = {
        "model": Path(source).name,
        "target": target,
        "by": by,
        "unit": result.unit,
        "best": {**to_document(result.best), "label": result.best.label},
        "best_cost": result.best_cost,
        "default_cost": result.default_cost,
        "speedup": result.default_cost / result.best_cost,
        "bundle": str(result_path),
        "journal": str(file),
        "trials": [
            {**to_document(trial), "label": trial.candidate.label} for trial in result.trials
        ],
    }
    output.result(document, lambda console: _print(console, result, result_path))


@contextmanager
def _evaluator(
    by: str,
    output: Output,
    settings: Settings,
    target: str,
    iterations: int,
    *,
    device: str | None,
    **how: Any,
) -> Iterator[Evaluator]:
    from edgectl.tuning import DeviceEvaluator, EstimateEvaluator

    if by == "estimate":
        yield EstimateEvaluator(target, settings, hooks_of(output))
        return
    with connected(device, output, target=target, **how) as remote:
        yield DeviceEvaluator(remote, settings, hooks_of(output), iterations=iterations)


def _numbers(text: str | None) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        numbers = (0,)
    if any(number < 1 for number in numbers):
        raise click.BadParameter(
            f"{text!r} is not a list of numbers like 1,2,4", param_hint="--threads"
        )
    return numbers


def _journal_file(settings: Settings, build: BuildOptions) -> Path:
    """One for each model and target; its entries are told apart by what they depend on."""
    name = Path(build.source.source.split(":")[0]).stem
    digest = hashlib.sha256(f"{build.source.source} {build.target}".encode()).hexdigest()[:12]
    return settings.state_dir / "tune" / f"{name}-{build.target}-{digest}.jsonl"


def _keep(bundle: Path, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.part")
        try:
            shutil.copyfile(bundle, partial)
            partial.replace(path)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"The bundle {path} cannot be written: {error.strerror or error}.",
            next_step="Name another file with --output.",
        ) from error


def _line(trial: Trial, unit: str) -> str:
    if trial.cost is None:
        return f"  {trial.candidate.label}: {trial.reason}"
    known = " (known)" if trial.remembered else ""
    return f"  {trial.candidate.label}: {trial.cost:.3f} {unit}{known}"


def _print(console: Console, result: TuneResult, path: Path) -> None:
    from rich.table import Column, Table

    table = Table(
        "choice",
        Column(result.unit, justify="right"),
        Column("of default", justify="right"),
        "",
        title="Tried",
    )
    base = next(t.cost for t in result.trials if t.cost is not None)
    for trial in sorted(result.trials, key=lambda t: t.cost if t.cost is not None else 1e300):
        if trial.cost is None:
            table.add_row(trial.candidate.label, "", "", trial.reason[:60])
        else:
            table.add_row(
                trial.candidate.label, f"{trial.cost:.3f}", f"{trial.cost / base:.2f}", trial.reason
            )
    console.print(table)
    console.print(
        f"best: {result.best.label}, {result.best_cost:.3f} {result.unit} beside "
        f"{result.default_cost:.3f} by default ({result.default_cost / result.best_cost:.2f} times "
        "as fast)",
        highlight=False,
    )
    if result.best.threads is not None:
        console.print(f"run it with --threads {result.best.threads}", highlight=False)
    console.print(f"written to {path}", highlight=False)
