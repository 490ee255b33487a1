"""Profiles an installed release on its device, with the tools of the runtime's own wheel there.

Profiling costs time itself, so it is a run of its own; the latency that a person quotes comes from
`edgectl deploy` or `bench`.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgectl.bundle import read_program
from edgectl.deployment import Deployment, Timing, deploy, mismatch
from edgectl.errors import DeviceError, EdgectlError
from edgectl.hooks import Hooks
from edgectl.installing import Sending, python_of
from edgectl.profiling.attribute import CallTime, attribute
from edgectl.profiling.trace import read_trace
from edgectl.records import Bundle
from edgectl.remote import Device
from edgectl.remote.agent_calls import RunnerHandle
from edgectl.remote.facts import gather_facts
from edgectl.remote.install import find_runner
from edgectl.settings import Settings
from edgectl_runner.contract import EntryPoint

__all__ = ["Profile", "profile_bundle"]

_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Times by call, the whole they are parts of, and the memory.

    ``whole_ms`` is the time of one inference while it was profiled; `deployment` has the latency
    without. ``constant_bytes`` are the module's weights, ``transient_bytes`` the pool of one call.
    """

    deployment: Deployment
    calls: tuple[CallTime, ...]
    whole_ms: float
    inferences: int
    threads: int
    constant_bytes: int
    transient_bytes: int

    @property
    def accounted(self) -> float:
        """Share of the whole that the calls add up to."""
        return sum(c.mean_ms for c in self.calls) / self.whole_ms

    @property
    def runtime_ms(self) -> float:
        """The rest: the call itself, memory, the steps between dispatches, and the profiling."""
        return self.whole_ms - sum(c.mean_ms for c in self.calls)


def profile_bundle(
    bundle: Bundle,
    device: Device,
    *,
    iterations: int = 10,
    threads: int | None = 1,
    settings: Settings | None = None,
    hooks: Hooks | None = None,
) -> Profile:
    """Deploys a bundle, checks its outputs, and profiles it.

    Args:
        bundle: what to profile.
        device: where.
        iterations: inferences to average over.
        threads: worker threads; ``None`` takes all cores.
        settings: where edgectl keeps its things.
        hooks: told about the steps.

    Raises:
        OutputMismatchError: the outputs are wrong; no times then.
        DeviceError: the device has no profiling tool, or the profile cannot be read.
    """
    hooks = hooks or Hooks()
    timing = Timing(iterations=iterations, threads=threads)
    # An old bundle may be profiled beside a new one.
    sending = Sending(allow_downgrade=True)
    deployment = deploy(
        bundle, device, timing=timing, sending=sending, settings=settings, hooks=hooks
    )
    error = mismatch(deployment.report)
    if error is not None:
        raise error
    workers = deployment.report.threads
    with hooks.step("profile"):
        answer, trace = _run(device, bundle, deployment, iterations, workers)
    inferences, whole_ms = _whole(answer)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.ireeprof"
        file.write_bytes(trace)
        events = read_trace(file)
    program = read_program(bundle)
    return Profile(
        deployment=deployment,
        calls=attribute(events, program.calls, inferences=inferences),
        whole_ms=whole_ms,
        inferences=inferences,
        threads=workers,
        constant_bytes=program.constant_bytes,
        transient_bytes=program.transient_bytes,
    )


def _run(
    device: Device, bundle: Bundle, deployment: Deployment, iterations: int, threads: int
) -> tuple[dict[str, Any], bytes]:
    handle = find_runner(device, python=python_of(gather_facts(device)))
    tool = f"{handle.root}/env/{handle.environment_digest}/iree/_runtime_libs/iree-benchmark-module"
    release = f"{handle.root}/releases/{deployment.release}"
    trace = f"{handle.incoming}/profile-{uuid.uuid4().hex[:12]}.ireeprof"
    command = [
        tool,
        f"--module={release}/{bundle.manifest.module}",
        *_device_flags(threads),
        *_call(bundle, release),
        f"--benchmark_min_time={iterations}x",
        # Any time at all: as many inferences again, before those that count.
        "--benchmark_min_warmup_time=0.001",
        "--benchmark_format=json",
        "--device_profiling_mode=queue-events,host-execution",
        f"--device_profiling_output={trace}",
    ]
    try:
        result = device.run(command, timeout_s=_TIMEOUT_S)
        if result.exit_code != 0:
            raise _failed(device, handle, result.stderr)
        return _answer(device, handle, result.stdout), device.get(trace)
    finally:
        with contextlib.suppress(EdgectlError):
            device.run(["rm", "-f", trace], timeout_s=30.0)


def _device_flags(threads: int) -> Sequence[str]:
    """The same device that the runner makes of so many threads."""
    if threads == 1:
        return ("--device=local-sync",)
    return ("--device=local-task", f"--task_topology_group_count={threads}")


def _call(bundle: Bundle, release: str) -> list[str]:
    """The first golden call; states begin with their first values at each inference."""
    golden = bundle.manifest.golden[0]
    entry: EntryPoint = bundle.manifest.entry_points[golden.entry_point]
    files = [*golden.inputs, *(state.initial for state in entry.states)]
    return [f"--function={entry.function}", *(f"--input=@{release}/{name}" for name in files)]


def _answer(device: Device, handle: RunnerHandle, output: bytes) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(output)
    except ValueError:
        raise _failed(device, handle, output) from None
    return document


def _whole(answer: dict[str, Any]) -> tuple[int, float]:
    """How many inferences there were, and the milliseconds of one."""
    scale = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
    try:
        (run,) = [b for b in answer["benchmarks"] if b.get("run_type") == "iteration"]
        return int(run["iterations"]), float(run["real_time"]) * scale[run["time_unit"]]
    except (KeyError, ValueError, TypeError) as error:
        raise DeviceError(
            f"The profiling tool on the device answered something else: {error!r}.",
            cause="The program ended with an error, or the tool is of another version.",
            next_step="edgectl doctor",
        ) from error


def _failed(device: Device, handle: RunnerHandle, words: bytes) -> DeviceError:
    lines = words.decode("utf-8", "replace").strip().splitlines()
    return DeviceError(
        f"{device.label}: the module could not be profiled: "
        f"{lines[-1][:200] if lines else 'no reason given'}",
        cause="The runtime's wheel on the device lacks its tools, or is damaged.",
        next_step=f"Remove {handle.root}/env/{handle.environment_digest} there and deploy again.",
    )
