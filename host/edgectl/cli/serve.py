"""``edgectl serve``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from edgectl.cli.building import hooks_of
from edgectl.cli.bundles import bundle_and_device
from edgectl.cli.console import Output
from edgectl.cli.operating import Managed, managed_device_options
from edgectl.cli.options import build_options, device_option, output_options
from edgectl.errors import DeviceError
from edgectl.settings import load_settings

if TYPE_CHECKING:
    from rich.console import Console

    from edgectl.serving import ServiceStatus

__all__ = ["command"]

LOOPBACK = ("127.0.0.1", "::1")
ManagedDevice = Callable[[], AbstractContextManager[Managed]]


@click.group("serve")
def command() -> None:
    """Run a model on a device as an HTTP service (Open Inference Protocol v2)."""


@command.command("start")
@build_options
@device_option
@click.option("--name", metavar="NAME", help="Of the model in addresses (its file's name).")
@click.option("--version", metavar="N", default="1", show_default=True, help="Of the model.")
@click.option("--also", is_flag=True, help="Keep what is served already; add this model to it.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; 0.0.0.0 is the whole network, which needs a token.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
@click.option(
    "--token",
    envvar="EDGECTL_SERVICE_TOKEN",
    help="What clients must send; made and shown once where one is needed.",
)
@click.option("--tls-certificate", metavar="PATH", help="PEM file on the device.")
@click.option("--tls-key", metavar="PATH", help="PEM file on the device.")
@click.option(
    "--contexts",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Calls of a model at the same time.",
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads of one call (all cores).")
@click.option(
    "--queue",
    "queue_capacity",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Requests that may wait; more are refused with 503.",
)
@click.option("--no-systemd", is_flag=True, help="A plain process, which a reboot ends.")
@output_options
def start(
    *,
    output: Output,
    device: str | None,
    accept_new_host_key: bool,
    ssh_timeout_s: float,
    name: str | None,
    version: str,
    also: bool,
    host: str,
    port: int,
    token: str | None,
    tls_certificate: str | None,
    tls_key: str | None,
    contexts: int,
    threads: int | None,
    queue_capacity: int,
    no_systemd: bool,
    **options: Any,
) -> None:
    """Compile MODEL if need be, push it to a device and serve it there.

    A service that runs is swapped without losing a request; a model that does not come up changes
    nothing. Clients: edgectl infer, tritonclient, or any other of the Open Inference Protocol.
    """
    from edgectl.serving import ServiceOptions
    from edgectl.serving.control import new_token
    from edgectl.serving.deployment import serve_bundle

    fresh = token is None and host not in LOOPBACK
    if fresh:
        token = new_token()
    with bundle_and_device(
        output,
        options,
        device=device,
        accept_new_host_key=accept_new_host_key,
        ssh_timeout_s=ssh_timeout_s,
    ) as (bundle, remote):
        service = ServiceOptions(
            models=_served_already(remote) if also else (),
            host=host,
            port=port,
            token=token,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            contexts=contexts,
            threads=threads,
            limits={"queue_capacity": queue_capacity},
            systemd=not no_systemd,
        )
        done = serve_bundle(
            bundle,
            remote,
            service,
            name=name,
            version=version,
            settings=load_settings(),
            hooks=hooks_of(output),
        )
        label, emulated = remote.label, remote.emulated
    document = {
        **_document(label, emulated, done.status),
        "release": done.release,
        "payload_bytes_sent": done.payload_bytes,
        "runtime_bytes_sent": done.runtime_bytes,
        "new_token": token if fresh else None,
    }

    def render(console: Console) -> None:
        _print_status(console, label, done.status)
        if fresh:
            console.print(
                f"token (shown this once): {token}", markup=False, highlight=False, soft_wrap=True
            )

    output.result(document, render)


@command.command("status")
@managed_device_options
def status(*, output: Output, managed: ManagedDevice) -> None:
    """Show whether a service runs on a device, where it listens and what it serves."""
    from edgectl.serving import service_status

    with managed() as found:
        now = service_status(found.device, found.handle)
        label, emulated = found.device.label, found.device.emulated
    output.result(
        _document(label, emulated, now), lambda console: _print_status(console, label, now)
    )


@command.command("logs")
@click.option("--last", type=click.IntRange(1, 10000), default=100, show_default=True)
@managed_device_options
def logs(*, output: Output, managed: ManagedDevice, last: int) -> None:
    """Show the newest lines of the service's log."""
    from edgectl.serving import service_logs

    with managed() as found:
        lines = service_logs(found.device, found.handle, last=last)
    output.result(
        {"lines": list(lines)},
        lambda console: console.print("\n".join(lines), markup=False, highlight=False),
    )


@command.command("stop")
@managed_device_options
def stop(*, output: Output, managed: ManagedDevice) -> None:
    """End the service, after what it has accepted; it no longer starts at boot."""
    from edgectl.serving import stop_service

    with managed() as found:
        ran = stop_service(found.device, found.handle)
    text = "the service has ended" if ran else "no service was running"
    output.result({"stopped": ran}, lambda console: console.print(text))


@command.command("url")
@managed_device_options
def url(*, output: Output, managed: ManagedDevice) -> None:
    """Print the service's address, for scripts."""
    from edgectl.serving import service_status

    with managed() as found:
        now = service_status(found.device, found.handle)
        label = found.device.label
    if now.address is None:
        raise DeviceError(f"no service runs on {label}", next_step="edgectl serve start MODEL")
    address = now.address
    output.result(
        {"url": address}, lambda console: console.print(address, markup=False, highlight=False)
    )


@command.command("bench")
@click.option("--url", required=True, envvar="EDGECTL_SERVICE_URL", help="As http://HOST:PORT.")
@click.option("--model", metavar="NAME", help="Which one, where several are served.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]FILE",
    help="What is sent; without it, zeros of the model's shapes.",
)
@click.option("--token", envvar="EDGECTL_SERVICE_TOKEN", help="Of the service.")
@click.option(
    "--concurrency",
    "concurrencies",
    type=click.IntRange(1, 512),
    multiple=True,
    help="Closed loop of so many clients; repeat it to sweep. 1 if nothing is said.",
)
@click.option(
    "--rate",
    "rates_per_s",
    type=click.FloatRange(min=0, min_open=True),
    multiple=True,
    help="Open loop of so many requests a second, in a Poisson process (repeatable).",
)
@click.option("--even", is_flag=True, help="Open loop with equal gaps in place of Poisson's.")
@click.option(
    "--seconds",
    "duration_s",
    type=click.FloatRange(min=0.1),
    default=10.0,
    show_default=True,
    help="Of each load.",
)
@output_options
def bench(
    *,
    output: Output,
    url: str,
    model: str | None,
    inputs: tuple[str, ...],
    token: str | None,
    concurrencies: tuple[int, ...],
    rates_per_s: tuple[float, ...],
    even: bool,
    duration_s: float,
) -> None:
    """Put a service under load: latency quantiles, throughput, refusals and losses.

    In an open loop latency counts from when a request was due, so that a stall is charged in full.
    """
    from edgectl.serving.load import ClosedLoop, LoadReport, OpenLoop, run_load
    from edgectl.serving.requesting import load_target

    target = load_target(url, model=model, files=inputs, token=token)
    modes: list[ClosedLoop | OpenLoop] = [ClosedLoop(concurrency=c) for c in concurrencies]
    modes += [OpenLoop(rate_per_s=r, poisson=not even) for r in rates_per_s]
    reports: list[LoadReport] = []
    for mode in modes or [ClosedLoop()]:
        with output.step(f"load: {mode}"):
            reports.append(run_load(target, mode, duration_s=duration_s))

    def render(console: Console) -> None:
        from rich.table import Table

        names = ("load", "answers/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "refused", "lost")
        table = Table(*names, title=f"{url}{target.path}")
        for report in reports:
            load = (
                f"{report.concurrency} clients"
                if report.concurrency is not None
                else f"{report.rate_per_s:g} a second"
            )
            quantiles = (report.p50_ms, report.p90_ms, report.p99_ms, report.max_ms)
            refused = sum(count for code, count in report.statuses.items() if code != 200)
            table.add_row(
                load,
                f"{report.throughput_per_s:.1f}",
                *("-" if q is None else f"{q:.2f}" for q in quantiles),
                str(refused),
                str(report.lost),
            )
        console.print(table)

    document = {"url": url, "loads": [dataclasses.asdict(report) for report in reports]}
    output.result(document, render)


def _served_already(device: Any) -> tuple[Any, ...]:
    from edgectl.remote.install import find_runner
    from edgectl.serving import service_status

    return service_status(device, find_runner(device)).models


def _document(label: str, emulated: bool, now: ServiceStatus) -> dict[str, Any]:
    return {"device": label, "emulated": emulated, "service": dataclasses.asdict(now)}


def _print_status(console: Console, label: str, now: ServiceStatus) -> None:
    where = now.address or "nowhere"
    console.print(f"{label}: {now.state}, {where}", markup=False, highlight=False)
    for model in now.models:
        console.print(
            f"  {where}/v2/models/{model.name}/versions/{model.version}/infer  "
            f"(release {model.release})",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    if now.restarts:
        console.print(f"  restarted {now.restarts} times", highlight=False)
    if now.last_error is not None:
        console.print(f"  last error: {now.last_error.get('message')}", markup=False)
    if now.running and now.manager == "process":
        console.print("  a plain process: it does not start again after a reboot")
