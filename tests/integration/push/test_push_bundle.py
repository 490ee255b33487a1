"""Bundles arrive whole, cheaply and once, whatever happens on the way."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_bundles import AFFINE, LoopbackDevice, compile_mlir, ready_handle

from edgectl.errors import BusyError, ConnectionFailedError, DeviceError, EdgectlError, UsageError
from edgectl.remote.agent_calls import call_runner
from edgectl.remote.hold import held
from edgectl.remote.install import prepare_device
from edgectl.remote.push import plan_push, push_bundle, run_release
from edgectl_runner.contract import GoldenLimits, RunRequest, to_document

Bundles = Callable[..., Path]


def noise(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8).tobytes()


def incoming(device: LoopbackDevice) -> list[str]:
    return sorted(p.name for p in (device.root / "incoming").iterdir())


def test_deploy_runs_and_reports(
    device: LoopbackDevice, handle: Any, affine: Bundles, tmp_path: Path
) -> None:
    pushed = push_bundle(device, handle, affine())
    assert pushed.payload_bytes > 0
    request = RunRequest(release=pushed.release, iterations=5, threads=1)
    report = run_release(device, handle, request, outputs=tmp_path / "out.npz")
    assert [c.passed for c in report.comparisons] == [True]
    assert report.latency is not None
    assert report.latency.iterations == len(report.latencies_ms) == 5
    with np.load(tmp_path / "out.npz") as archive:
        assert float(archive["y"][0, 1]) == 3.0
    assert incoming(device) == []


def test_the_same_bundle_again_sends_nothing(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    bundle = affine()
    first = push_bundle(device, handle, bundle)
    device.sent.clear()
    again = push_bundle(device, handle, bundle)
    assert (again.payload_bytes, again.already_installed) == (0, True)
    assert again.release == first.release
    assert device.sent == []
    assert ready_handle(device).bytes_sent == 0
    assert device.sent == []


def test_a_dry_run_tells_the_bytes_and_sends_none(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    bundle = affine(extra={"weights.bin": noise(1 << 20)})
    device.sent.clear()
    plan = plan_push(device, handle, bundle)
    assert device.sent == []
    assert not plan.already_installed
    assert push_bundle(device, handle, bundle).payload_bytes == plan.payload_bytes
    again = plan_push(device, handle, bundle)
    assert (again.payload_bytes, again.already_current, again.files) == (0, True, ())


def test_inputs_of_the_user_are_used(
    device: LoopbackDevice, handle: Any, affine: Bundles, tmp_path: Path
) -> None:
    release = push_bundle(device, handle, affine()).release
    x = np.full((4, 8), 10, np.float32)
    out = tmp_path / "out.npz"
    run_release(device, handle, RunRequest(release=release, iterations=1), [x], outputs=out)
    with np.load(out) as archive:
        assert float(archive["y"][0, 0]) == 21.0
    with pytest.raises(UsageError, match="expected 4x8xfloat32, got 4x8xfloat64"):
        run_release(device, handle, RunRequest(release=release), [x.astype(np.float64)])
    assert incoming(device) == []


def test_a_wrong_output_shows_no_latency(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    release = push_bundle(device, handle, affine(expected_offset=0.5)).release
    report = run_release(device, handle, RunRequest(release=release))
    assert [c.passed for c in report.comparisons] == [False]
    assert report.comparisons[0].max_absolute_error == 0.5
    assert report.latency is None
    assert report.latencies_ms == ()


def test_a_stateful_model_is_compared_call_by_call(
    device: LoopbackDevice, handle: Any, counter: Path
) -> None:
    release = push_bundle(device, handle, counter).release
    report = run_release(device, handle, RunRequest(release=release, iterations=3, threads=1))
    assert [(c.call, c.passed) for c in report.comparisons] == [(0, True), (1, True), (2, True)]


def test_min_seconds_and_affinity(device: LoopbackDevice, handle: Any, affine: Bundles) -> None:
    release = push_bundle(device, handle, affine()).release
    report = run_release(
        device,
        handle,
        RunRequest(release=release, iterations=1, min_seconds=0.02, cpu_affinity=(0,)),
    )
    assert report.threads == 1
    assert sum(report.latencies_ms) >= 20.0
    with pytest.raises(UsageError, match="cannot run on processors 9999"):
        run_release(device, handle, RunRequest(release=release, cpu_affinity=(9999,)))


def test_one_changed_layer_of_a_large_model_is_a_small_transfer(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    weights = noise(20 << 20)
    changed = weights[: 8 << 20] + noise(1 << 20, seed=1) + weights[9 << 20 :]
    first = push_bundle(device, handle, affine("a.edgectl", extra={"weights.bin": weights}))
    second = push_bundle(device, handle, affine("b.edgectl", extra={"weights.bin": changed}))
    assert first.payload_bytes > 20 << 20
    assert second.payload_bytes < 0.15 * first.payload_bytes
    assert second.skipped_bytes > 0.85 * (20 << 20)
    assert (device.root / "current" / "weights.bin").read_bytes() == changed


class BreakingDevice(LoopbackDevice):
    """The connection breaks after so many bytes of one transfer, as often as told."""

    def __init__(self, root: Path, after: int, times: int):
        super().__init__(root)
        self.after = after
        self.times = times

    def put(self, source: Any, destination: str, *, offset: int = 0, **options: Any) -> int:
        data = source if isinstance(source, bytes) else source.read_bytes()
        if self.times > 0 and len(data) - offset > self.after:
            self.times -= 1
            with Path(destination + ".part").open("r+b" if offset else "wb") as file:
                file.seek(offset)
                file.write(data[offset : offset + self.after])
            raise ConnectionFailedError("reset by peer")
        return super().put(data, destination, offset=offset, **options)


def test_a_broken_transfer_goes_on_where_it_stopped(tmp_path: Path, affine: Bundles) -> None:
    device = BreakingDevice(tmp_path / "home" / "edgectl", after=1 << 20, times=0)
    handle = ready_handle(device)
    bundle = affine(extra={"weights.bin": noise(5 << 20)})
    device.times = 3
    for _ in range(3):
        with pytest.raises(ConnectionFailedError):
            push_bundle(device, handle, bundle)
    device.sent.clear()
    report = push_bundle(device, handle, bundle)
    assert report.payload_bytes < (2 << 20) + 20_000
    assert (device.root / "current" / "weights.bin").stat().st_size == 5 << 20


class FlippingDevice(LoopbackDevice):
    """One bit of the first large transfer arrives changed."""

    flips = 1

    def put(self, source: Any, destination: str, **options: Any) -> int:
        data = source if isinstance(source, bytes) else source.read_bytes()
        if self.flips > 0 and len(data) > 1 << 20:
            self.flips -= 1
            spoiled = bytearray(data)
            spoiled[len(data) // 2] ^= 4
            data = bytes(spoiled)
        return super().put(data, destination, **options)


def test_a_flipped_bit_costs_one_chunk(tmp_path: Path, affine: Bundles) -> None:
    device = FlippingDevice(tmp_path / "home" / "edgectl")
    handle = ready_handle(device)
    weights = noise(4 << 20)
    report = push_bundle(device, handle, affine(extra={"weights.bin": weights}))
    assert report.payload_bytes < (4 << 20) + (256 << 10) + 20_000
    assert (device.root / "current" / "weights.bin").read_bytes() == weights
    assert incoming(device) == []


def test_a_device_that_always_damages_is_given_up(tmp_path: Path, affine: Bundles) -> None:
    class Broken(LoopbackDevice):
        def put(self, source: Any, destination: str, **options: Any) -> int:
            data = source if isinstance(source, bytes) else source.read_bytes()
            return super().put(bytes(len(data)), destination, **options)

    device = Broken(tmp_path / "home" / "edgectl")
    handle = ready_handle(LoopbackDevice(device.root))
    with pytest.raises(DeviceError, match="arrived damaged 3 times"):
        push_bundle(device, handle, affine())
    assert not (device.root / "current").is_symlink()
    assert incoming(device) == []


def test_a_full_disk_during_the_transfer_leaves_no_partials(
    tmp_path: Path, affine: Bundles
) -> None:
    class Full(LoopbackDevice):
        def put(self, source: Any, destination: str, **options: Any) -> int:
            super().put(source[: len(source) // 2], destination, **options)
            raise DeviceError("no space left on device")

    device = Full(tmp_path / "home" / "edgectl")
    handle = ready_handle(LoopbackDevice(device.root))
    with pytest.raises(DeviceError, match="no space left"):
        push_bundle(device, handle, affine())
    assert incoming(device) == []


def test_an_interrupt_leaves_the_device_clean(tmp_path: Path, affine: Bundles) -> None:
    class Interrupted(LoopbackDevice):
        def put(self, source: Any, destination: str, **options: Any) -> int:
            super().put(source, destination, **options)
            raise KeyboardInterrupt

    device = Interrupted(tmp_path / "home" / "edgectl")
    handle = ready_handle(LoopbackDevice(device.root))
    with pytest.raises(KeyboardInterrupt):
        push_bundle(device, handle, affine())
    assert incoming(device) == []


def test_a_module_for_another_processor_is_refused_before_it_is_installed(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    other = "aarch64" if os.uname().machine == "x86_64" else "x86_64"
    bundle = affine(module=compile_mlir(AFFINE, other), architecture=other)
    with pytest.raises(DeviceError, match=f"artifact is {other}, device is {os.uname().machine}"):
        push_bundle(device, handle, bundle)
    assert not (device.root / "current").is_symlink()
    assert incoming(device) == []


def test_a_bundle_that_was_changed_on_this_computer_is_not_sent(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    import zipfile

    bundle = affine()
    with zipfile.ZipFile(bundle) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    members["module.vmfb"] = members["module.vmfb"][:-1] + b"?"
    with zipfile.ZipFile(bundle, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(UsageError, match=r"module\.vmfb is not what its manifest says"):
        push_bundle(device, handle, bundle)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"text"])
def test_a_file_that_is_no_bundle_is_one_sentence(
    device: LoopbackDevice, handle: Any, tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "x.edgectl"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a bundle"):
        push_bundle(device, handle, path)


def test_a_release_that_is_not_installed_names_those_that_are(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    release = push_bundle(device, handle, affine()).release
    with pytest.raises(DeviceError, match=f"not installed on this device .installed: {release}"):
        run_release(device, handle, RunRequest(release="0" * 16))


def test_a_file_changed_on_the_card_is_not_run(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    release = push_bundle(device, handle, affine()).release
    module = device.root / "releases" / release / "module.vmfb"
    data = bytearray(module.read_bytes())
    data[100] ^= 1
    module.chmod(0o644)
    module.write_bytes(bytes(data))
    with pytest.raises(DeviceError, match=r"is damaged: module\.vmfb"):
        run_release(device, handle, RunRequest(release=release))


def test_a_second_deployment_is_told_who_is_at_work(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    bundle = affine()
    with held(device, handle, who="ada@desk"):
        start = time.monotonic()
        with pytest.raises(BusyError, match="under way: ada@desk"):
            push_bundle(device, handle, bundle)
        assert time.monotonic() - start < 2.0
        with pytest.raises(BusyError, match="ada@desk"), held(device, handle, who="bob@desk"):
            pytest.fail("two hold the device")
        with pytest.raises(BusyError, match="ada@desk"):
            call_runner(device, handle, "gc", {})
    assert push_bundle(device, handle, bundle).release


def test_a_host_that_dies_frees_the_device(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    device.root.mkdir(parents=True, exist_ok=True)
    holder = subprocess.Popen(
        [*handle.argv, "hold"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stderr is not None
    holder.stdin.write(b'{"token": "0123456789abcdef", "who": "dead@desk"}')
    holder.stdin.close()
    assert holder.stderr.readline() == b"held\n"
    with pytest.raises(BusyError, match="dead@desk"):
        push_bundle(device, handle, affine())
    holder.stdout.close()  # what the end of an SSH connection does
    assert holder.wait(timeout=5) == 0 or holder.returncode > 0
    holder.stderr.close()
    assert push_bundle(device, handle, affine()).release


def test_a_lost_connection_ends_a_run_on_the_device(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    release = push_bundle(device, handle, affine()).release
    run = subprocess.Popen(
        [*handle.argv, "run"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert run.stdin is not None
    assert run.stdout is not None
    request = RunRequest(release=release, min_seconds=120.0, threads=1)
    run.stdin.write(json.dumps(to_document(request)).encode())
    run.stdin.close()
    time.sleep(1.5)
    assert run.poll() is None
    run.stdout.close()
    start = time.monotonic()
    run.wait(timeout=10)
    assert time.monotonic() - start < 5.0


def test_a_disk_without_room_is_refused_with_numbers_before_anything_travels(
    tmp_path: Path, affine: Bundles
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    try:
        device = LoopbackDevice(disk / "edgectl")
        handle = ready_handle(device)
        device.sent.clear()
        with pytest.raises(DeviceError, match=r"need \d+ bytes, have \d+ bytes"):
            push_bundle(device, handle, affine(extra={"weights.bin": noise(4 << 20)}))
        assert device.sent == []
        small = push_bundle(device, handle, affine("small.edgectl"))
        assert small.payload_bytes > 0
    finally:
        subprocess.run(["umount", disk], check=True)


def test_native_code_that_crashes_is_a_sentence() -> None:
    import faulthandler

    from edgectl_runner.failures import RunnerError
    from edgectl_runner.isolation import run_isolated

    with pytest.raises(RunnerError, match=r"no answer within 0\.2 s"):
        run_isolated(lambda _: time.sleep(60) or {}, silence_s=0.2, watch_stdout=False)

    def slow(beat: Callable[[], None]) -> dict[str, Any]:
        for _ in range(8):
            time.sleep(0.1)
            beat()
        return {"done": True}

    assert run_isolated(slow, silence_s=0.5, watch_stdout=False) == {"done": True}

    def crash(number: int) -> dict[str, Any]:
        faulthandler.disable()
        os.kill(os.getpid(), number)
        return {}

    for number, words in ((4, "binary needs"), (9, "was killed"), (11, "crashed with SIGSEGV")):
        with pytest.raises(RunnerError, match=words):
            run_isolated(lambda _, n=number: crash(n), watch_stdout=False)


def test_runner_and_packages_from_real_wheels(tmp_path: Path, affine: Bundles) -> None:
    device = LoopbackDevice(tmp_path / "home" / "edgectl")
    device.root.parent.mkdir()
    try:
        handle = prepare_device(device, python="/usr/bin/python3")
    except EdgectlError as error:
        if "unreachable" in str(error.cause) or "has no /usr/bin/python3" in str(error):
            pytest.skip(str(error))
        raise
    assert handle.bytes_sent > 10_000_000
    release = push_bundle(device, handle, affine()).release
    report = run_release(device, handle, RunRequest(release=release, threads=1))
    assert report.latency is not None
    module_bytes = (device.root / "current" / "module.vmfb").stat().st_size
    assert report.peak_rss_bytes <= 2 * module_bytes + 45 * 10**6
    assert prepare_device(device, python="/usr/bin/python3").bytes_sent == 0


def test_a_device_without_python_says_so(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="has no python3-nope"):
        prepare_device(LoopbackDevice(tmp_path), python="python3-nope")


def test_the_runner_verbs_answer_errors_as_documents(device: LoopbackDevice, handle: Any) -> None:
    with pytest.raises(UsageError, match="VERB one of"):
        call_runner(device, handle, "reboot", {})
    with pytest.raises(UsageError, match="no manifest"):
        call_runner(device, handle, "install", {})
    assert call_runner(device, handle, "status", {})["current"] is None
    assert "memory_total_bytes" in call_runner(device, handle, "facts", {})


def test_golden_limits_of_the_bundle_decide(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    bundle = affine(expected_offset=0.5, golden_limits=GoldenLimits(max_relative_error=0.1))
    release = push_bundle(device, handle, bundle).release
    assert run_release(device, handle, RunRequest(release=release)).latency is not None
