"""Sends a bundle to a device and runs it there; only what the device lacks travels.

handle = prepare_device(device)
pushed = push_bundle(device, handle, Path("model.edgectl"))
report = run_release(device, handle, RunRequest(release=pushed.release))
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgectl.errors import ConnectionFailedError, DeviceError, EdgectlError
from edgectl.remote.agent_calls import RunnerHandle, call_runner
from edgectl.remote.bandwidth import limited
from edgectl.remote.base import Device, Progress
from edgectl.remote.bundle_contents import (
    Contents,
    install_request,
    open_bundle,
    read_chunks,
    read_contents,
)
from edgectl.remote.hold import held
from edgectl.remote.releases import local_user
from edgectl_runner.contract import (
    ContractError,
    RunReport,
    RunRequest,
    from_document,
    to_document,
)

if TYPE_CHECKING:
    import numpy as np

    from edgectl.signing import SigningKey

__all__ = ["PushPlan", "PushReport", "plan_push", "push_bundle", "run_release"]

REPAIR_ROUNDS = 3
HOLD_FROM_BYTES = 1 << 20
STEP_S = 30.0
EMULATED_STEP_S = 600.0
INSTALL_TIMEOUT_S = 3600.0
RUN_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReport:
    """What it took to get a bundle onto a device.

    ``payload_bytes`` travelled, ``skipped_bytes`` of the bundle were there already.
    ``previous`` is the release that a rollback goes to. ``healthy`` is the device's own verdict
    (``None``: it was not asked); when it is false, the device went back and ``reason`` says why.
    """

    release: str
    payload_bytes: int
    skipped_bytes: int
    already_installed: bool
    previous: str | None
    healthy: bool | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PushPlan:
    """What a push would send: ``files`` are written on the device on the way."""

    release: str
    bundle_bytes: int
    payload_bytes: int
    files: tuple[str, ...]
    already_installed: bool
    already_current: bool


def push_bundle(
    device: Device,
    handle: RunnerHandle,
    bundle_path: Path,
    *,
    progress: Progress | None = None,
    who: str | None = None,
    activate: bool = True,
    key: SigningKey | None = None,
    allow_downgrade: bool = False,
    health: Mapping[str, float] | bool = True,
    bytes_per_s: float | None = None,
) -> PushReport:
    """Installs a bundle and makes it the device's current release.

    A broken connection leaves what arrived on the device, and the next call goes on from there;
    every other failure, an interrupt included, removes it.

    Args:
        device: where.
        handle: the runner there.
        bundle_path: the ``.edgectl`` file.
        progress: told about the bytes that travel.
        who: noted in the device's audit log; the local user by default.
        activate: also make it the current release.
        key: signs a bundle that carries no signature yet.
        allow_downgrade: take a model with a lower sequence number than one already seen.
        health: put the release on probation: it stays current only if the device finds its
            golden outputs right. ``True``, ``False``, or a mapping with ``timeout_s`` (of one
            step), ``window_s`` and ``max_latency_ms``.
        bytes_per_s: send no faster than that.

    Raises:
        UsageError: the bundle cannot be read.
        DeviceError: no room, or the device refused it.
        BusyError: somebody else deploys to the device.
    """
    who = who if who is not None else local_user()
    progress = limited(progress, bytes_per_s)
    with open_bundle(bundle_path) as archive:
        contents = read_contents(archive)
        request = install_request(
            contents,
            who=who,
            activate=activate,
            key=key,
            allow_downgrade=allow_downgrade,
            health=_patience(device) if health is True else health,
        )
        plan = call_runner(device, handle, "have", request)
        if plan["installed"] and (plan["current"] or not activate):
            return PushReport(
                release=str(plan["release"]),
                payload_bytes=0,
                skipped_bytes=contents.size_bytes,
                already_installed=True,
                previous=None,
            )
        packs = plan["packs"]
        with _held_if_long(device, handle, packs, who) as token:
            request["token"] = token
            try:
                sent = _send_packs(device, handle, archive, contents, packs, progress)
                answer, repaired = _install(device, handle, archive, contents, request, packs)
            except ConnectionFailedError:
                raise  # what arrived stays there, and the next call goes on from it
            except (EdgectlError, KeyboardInterrupt):
                names = [str(pack["name"]) for pack in packs]
                with contextlib.suppress(EdgectlError):
                    call_runner(device, handle, "discard", {"names": names}, timeout_s=30.0)
                raise
    sent += repaired
    return PushReport(
        release=str(plan["release"]),
        payload_bytes=sent,
        skipped_bytes=max(0, contents.size_bytes - sent),
        already_installed=bool(answer["already_installed"]),
        previous=answer.get("previous"),
        healthy=answer.get("healthy"),
        reason=answer.get("reason"),
    )


def _held_if_long(
    device: Device, handle: RunnerHandle, packs: Sequence[Mapping[str, Any]], who: str
) -> AbstractContextManager[str | None]:
    """Holds the device for a transfer that takes a while.

    A short one needs no hold (and no second process on a slow board): the install command takes
    the lock by itself, and what it works on is named by content.
    """
    size = sum(int(p["size_bytes"]) - int(p["received_bytes"]) for p in packs)
    if size < HOLD_FROM_BYTES:
        return contextlib.nullcontext()
    return held(device, handle, who=who)


def plan_push(
    device: Device,
    handle: RunnerHandle,
    bundle_path: Path,
    *,
    key: SigningKey | None = None,
    allow_downgrade: bool = False,
) -> PushPlan:
    """What `push_bundle` would do, for ``--dry-run``; the device checks the bundle all the same.

    Raises:
        EdgectlError: as `push_bundle` would before its first byte travels.
    """
    with open_bundle(bundle_path) as archive:
        contents = read_contents(archive)
    request = install_request(
        contents,
        who=local_user(),
        activate=True,
        key=key,
        allow_downgrade=allow_downgrade,
        health=True,
    )
    answer = call_runner(device, handle, "have", request)
    packs = answer["packs"]
    return PushPlan(
        release=str(answer["release"]),
        bundle_bytes=contents.size_bytes,
        payload_bytes=sum(int(p["size_bytes"]) - int(p["received_bytes"]) for p in packs),
        files=tuple(f"{handle.incoming}/{p['name']}" for p in packs),
        already_installed=bool(answer["installed"]),
        already_current=bool(answer["current"]),
    )


def _patience(device: Device) -> Mapping[str, float]:
    """How long one golden call may take: an emulated processor is many times slower."""
    return {"timeout_s": EMULATED_STEP_S if device.emulated else STEP_S}


def run_release(
    device: Device,
    handle: RunnerHandle,
    request: RunRequest,
    inputs: Sequence[np.ndarray] | None = None,
    *,
    outputs: Path | None = None,
    timeout_s: float | None = None,
) -> RunReport:
    """Runs an installed release on the device.

    Args:
        device: where.
        handle: the runner there.
        request: what to do; its ``inputs`` and ``outputs`` are filled in here.
        inputs: arrays for the model, in signature order; ``None`` takes the bundle's first
            golden inputs.
        outputs: file on this computer for the output arrays (``.npz``, by output name).
        timeout_s: how long the whole run may take; by default what the request asks for, and
            plenty for loading and the golden calls.

    Raises:
        UsageError: an input does not fit the model.
        DeviceError: the run failed, was killed, or took too long.
    """
    import numpy as np

    if timeout_s is None:
        slowness = EMULATED_STEP_S / STEP_S if device.emulated else 1.0
        timeout_s = RUN_TIMEOUT_S * slowness + 3.0 * request.min_seconds
    tag = uuid.uuid4().hex[:12]
    names: list[str] = []
    try:
        if inputs is not None:
            for index, array in enumerate(inputs):
                buffer = io.BytesIO()
                np.save(buffer, array, allow_pickle=False)
                names.append(f"run-{tag}-{index}.npy")
                device.put(buffer.getvalue(), f"{handle.incoming}/{names[-1]}")
            request = replace(request, inputs=tuple(names))
        if outputs is not None:
            names.append(f"run-{tag}.npz")
            request = replace(request, outputs=names[-1])
        answer = call_runner(device, handle, "run", to_document(request), timeout_s=timeout_s)
        try:
            report = from_document(RunReport, answer)
        except ContractError as error:
            raise DeviceError(
                f"{device.label}: the report was not understood: {error}",
                next_step="deploy again, so that host and device have the same version",
            ) from error
        if outputs is not None and report.outputs_file is not None:
            outputs.write_bytes(device.get(f"{handle.incoming}/{names[-1]}"))
    finally:
        if names:
            with contextlib.suppress(EdgectlError):
                device.run(["rm", "-f", *(f"{handle.incoming}/{n}" for n in names)], timeout_s=30.0)
    return report


def _send_packs(
    device: Device,
    handle: RunnerHandle,
    archive: zipfile.ZipFile,
    contents: Contents,
    packs: Sequence[Mapping[str, Any]],
    progress: Progress | None,
) -> int:
    total = sum(int(p["size_bytes"]) for p in packs)
    done = sent = 0
    for pack in packs:
        received, size = int(pack["received_bytes"]), int(pack["size_bytes"])
        if received < size:
            sent += device.put(
                b"".join(read_chunks(archive, contents, pack["chunks"])),
                f"{handle.incoming}/{pack['name']}",
                offset=received,
                progress=_shifted(progress, done, total),
            )
        done += size
    return sent


def _shifted(progress: Progress | None, base: int, total: int) -> Progress | None:
    if progress is None:
        return None
    return lambda done, _: progress(base + done, total)


def _install(
    device: Device,
    handle: RunnerHandle,
    archive: zipfile.ZipFile,
    contents: Contents,
    request: dict[str, Any],
    packs: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], int]:
    """Installs; chunks that arrived damaged are sent again, alone, a few times."""
    sent = 0
    sent_packs = [{key: p[key] for key in ("name", "whole", "chunks")} for p in packs]
    repairs: list[str] = []
    for _ in range(REPAIR_ROUNDS + 1):
        answer = call_runner(
            device,
            handle,
            "install",
            {**request, "packs": sent_packs},
            timeout_s=INSTALL_TIMEOUT_S,
        )
        if answer["installed"]:
            return answer, sent
        bad = answer["bad_chunks"]
        data = b"".join(read_chunks(archive, contents, bad))
        repairs.append(f"repair-{hashlib.sha256(data).hexdigest()[:16]}-{len(repairs)}.pack")
        sent += device.put(data, f"{handle.incoming}/{repairs[-1]}")
        sent_packs.append({"name": repairs[-1], "whole": None, "chunks": bad})
    with contextlib.suppress(EdgectlError):
        call_runner(device, handle, "discard", {"names": repairs}, timeout_s=30.0)
    raise DeviceError(
        f"{device.label}: {len(bad)} chunks arrived damaged {REPAIR_ROUNDS} times",
        cause="the device's card or memory is failing, or something on the way changes bytes",
        next_step="check the SD card, then deploy again",
    )
