"""``edgectl profile``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edgectl.cli.building import hooks_of
from edgectl.cli.bundles import bundle_and_device
from edgectl.cli.console import Output
from edgectl.cli.options import build_options, device_option, output_options
from edgectl.settings import load_settings
from edgectl_runner.contract import to_document
from edgectl_toolchains import load_target

if TYPE_CHECKING:
    from rich.console import Console

    from edgectl.profiling import CallTime, Profile
    from edgectl.records import Bundle

__all__ = ["command"]


@click.command("profile")
@build_options
@device_option
@click.option(
    "--iterations", type=click.IntRange(min=1), default=10, show_default=True, help="Inferences."
)
@click.option("--threads", type=click.IntRange(min=1), help="Worker threads (default: all cores).")
@click.option(
    "--top", type=click.IntRange(min=0), default=20, show_default=True, help="Layers (0: all)."
)
@output_options
def command(
    *,
    output: Output,
    device: str | None,
    accept_new_host_key: bool,
    ssh_timeout_s: float,
    iterations: int,
    threads: int | None,
    top: int,
    **options: Any,
) -> None:
    """Show where the time of MODEL goes on a device, by layer of the PyTorch model.

    MODEL is a model file, a bundle (.edgectl), or a Python factory. Its outputs are compared with
    PyTorch first, as in deploy. Profiling costs some time itself: the latency to quote is the one
    of deploy or bench.
    """
    from edgectl.profiling import profile_bundle

    settings = load_settings()
    with bundle_and_device(
        output,
        options,
        device=device,
        accept_new_host_key=accept_new_host_key,
        ssh_timeout_s=ssh_timeout_s,
    ) as (bundle, remote):
        profile = profile_bundle(
            bundle,
            remote,
            iterations=iterations,
            threads=threads,
            settings=settings,
            hooks=hooks_of(output),
        )
    rows = [_row(bundle, profile, call) for call in profile.calls]
    output.result(
        _document(bundle, profile, rows),
        lambda console: _print(console, bundle, profile, rows, top),
    )


def _row(bundle: Bundle, profile: Profile, time: CallTime) -> dict[str, Any]:
    from edgectl.profiling import roofline

    manifest = bundle.manifest
    limit = roofline(
        time.call,
        load_target(manifest.target),
        precision=manifest.precision,
        threads=profile.threads,
    )
    call = {k: v for k, v in to_document(time.call).items() if k not in ("function", "nodes")}
    return {
        **call,
        "mean_ms": time.mean_ms,
        "min_ms": time.min_ms,
        "max_ms": time.max_ms,
        "share": time.mean_ms / profile.whole_ms,
        "bound": limit.bound,
        "limit_ms": limit.limit_ms,
        "of_limit": limit.limit_ms / time.mean_ms if time.mean_ms else None,
    }


def _document(bundle: Bundle, profile: Profile, rows: list[dict[str, Any]]) -> dict[str, Any]:
    deployment = profile.deployment
    return {
        "model": bundle.manifest.name,
        "target": bundle.manifest.target,
        "precision": bundle.manifest.precision,
        "device": deployment.device,
        "emulated": deployment.emulated,
        "release": deployment.release,
        "threads": profile.threads,
        "inferences": profile.inferences,
        "whole_ms": profile.whole_ms,
        "accounted": profile.accounted,
        "runtime_ms": profile.runtime_ms,
        "peak_rss_bytes": deployment.report.peak_rss_bytes,
        "constant_bytes": profile.constant_bytes,
        "transient_bytes": profile.transient_bytes,
        "latency": to_document(deployment.report.latency) if deployment.report.latency else None,
        "layers": rows,
    }


def _print(
    console: Console, bundle: Bundle, profile: Profile, rows: list[dict[str, Any]], top: int
) -> None:
    from rich.table import Column, Table

    target = load_target(bundle.manifest.target)
    emulated = " (EMULATED: times are not a Pi's)" if profile.deployment.emulated else ""
    table = Table(
        Column("module", overflow="fold", min_width=24),
        "operator",
        *(Column(c, justify="right", no_wrap=True) for c in ("ms", "share", "M MACs", "kB")),
        Column("of limit", no_wrap=True),
        title=f"{bundle.manifest.name} on {profile.deployment.device}, {profile.threads} threads, "
        f"mean of {profile.inferences}{emulated}",
    )
    ordered = sorted(rows, key=lambda row: -row["mean_ms"])
    for row in ordered[: top or None]:
        table.add_row(
            row["module"] or row["symbol"],
            row["operator"].removeprefix("aten.").removesuffix(".default"),
            f"{row['mean_ms']:.3f}",
            f"{row['share']:.1%}",
            f"{row['macs'] / 1e6:.2f}" if row["macs"] else "",
            f"{(row['read_bytes'] + row['written_bytes']) / 1e3:.0f}",
            f"{row['of_limit']:.0%} {row['bound']}" if row["of_limit"] else "",
        )
    rest = ordered[top:] if top else []
    if rest:
        spent = sum(row["mean_ms"] for row in rest)
        table.add_row(
            f"{len(rest)} more (--top 0)", "", f"{spent:.3f}", f"{spent / profile.whole_ms:.1%}"
        )
    table.add_row(
        "(between layers)",
        "",
        f"{profile.runtime_ms:.3f}",
        f"{profile.runtime_ms / profile.whole_ms:.1%}",
    )
    console.print(table)
    console.print(
        f"layers add up to {profile.accounted:.1%} of {profile.whole_ms:.2f} ms; limits of "
        f"{target.cpu} at {target.clock_mhz} MHz",
        highlight=False,
    )
    console.print(
        f"memory: peak {profile.deployment.report.peak_rss_bytes / 1e6:.1f} MB, weights "
        f"{profile.constant_bytes / 1e6:.2f} MB, intermediate results "
        f"{profile.transient_bytes / 1e6:.2f} MB",
        highlight=False,
    )
