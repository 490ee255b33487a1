"""A release that is not healthy is given up by the device itself; nothing is lost by a crash."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_bundles import LoopbackDevice, ready_handle

from edgectl.errors import DeviceError, UsageError
from edgectl.remote.agent_calls import call_runner
from edgectl.remote.install import find_runner
from edgectl.remote.push import push_bundle, run_release
from edgectl.remote.releases import collect_garbage, device_status
from edgectl_runner.contract import RunRequest

Bundles = Callable[..., Path]


def events(device: LoopbackDevice, handle: Any) -> list[str]:
    return [r["event"] for r in call_runner(device, handle, "history", {})["records"]]


def status(device: LoopbackDevice, handle: Any) -> tuple[str | None, str | None]:
    document = call_runner(device, handle, "status", {})
    assert document["on_probation"] is None
    return document["current"], document["previous"]


def test_a_healthy_release_stays(device: LoopbackDevice, handle: Any, affine: Bundles) -> None:
    pushed = push_bundle(device, handle, affine())
    assert pushed.healthy is True
    assert status(device, handle) == (pushed.release, None)
    assert events(device, handle)[-2:] == ["install", "healthy"]


def test_wrong_outputs_bring_the_old_release_back(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    zero = push_bundle(device, handle, affine("0.edgectl", precision="int8")).release
    good = push_bundle(device, handle, affine("1.edgectl")).release
    bad = push_bundle(device, handle, affine("2.edgectl", expected_offset=0.5))
    assert bad.healthy is False
    assert "output 'y' of golden call 0 is wrong" in (bad.reason or "")
    assert status(device, handle) == (good, zero)
    assert events(device, handle)[-2:] == ["install", "auto-rollback"]
    # Still there to be looked at: its report says what is wrong, and shows no latency.
    assert run_release(device, handle, RunRequest(release=bad.release)).latency is None


def test_two_bad_releases_stop_safely(device: LoopbackDevice, handle: Any, affine: Bundles) -> None:
    for offset in (0.5, 0.7):
        bundle = affine(f"{offset}.edgectl", expected_offset=offset)
        assert push_bundle(device, handle, bundle).healthy is False
        assert status(device, handle) == (None, None)
    good = push_bundle(device, handle, affine("good.edgectl"))
    assert status(device, handle) == (good.release, None)


def test_a_release_that_cannot_be_loaded_is_given_up(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    good = push_bundle(device, handle, affine("1.edgectl")).release
    bad = push_bundle(device, handle, affine("2.edgectl", module=b"no module"))
    assert bad.healthy is False
    assert "not a module this runtime reads" in (bad.reason or "")
    assert status(device, handle)[0] == good


def test_a_release_that_is_too_slow_is_given_up(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    pushed = push_bundle(device, handle, affine(), health={"max_latency_ms": 0.0})
    assert pushed.healthy is False
    assert "ms, more than the 0 ms allowed" in (pushed.reason or "")


def test_the_window_keeps_calling(device: LoopbackDevice, handle: Any, affine: Bundles) -> None:
    start = time.monotonic()
    assert push_bundle(device, handle, affine(), health={"window_s": 0.7}).healthy is True
    assert time.monotonic() - start > 0.7


def test_a_health_check_that_is_none_is_refused(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    with pytest.raises(UsageError, match="is not a health check"):
        push_bundle(device, handle, affine(), health={"patience": 3.0})


def test_a_device_that_stopped_during_a_probation_goes_back(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    good = push_bundle(device, handle, affine("1.edgectl")).release
    new = push_bundle(device, handle, affine("2.edgectl", precision="int8")).release
    note = {"release": new, "current": good, "previous": None}
    (device.root / "probation.json").write_text(json.dumps(note))
    assert call_runner(device, handle, "settle", {}) == {"current": good, "previous": None}
    assert events(device, handle)[-1] == "auto-rollback"
    assert status(device, handle) == (good, None)


def test_rollback_goes_back_and_forth_and_digests_first(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    first = push_bundle(device, handle, affine("1.edgectl")).release
    second = push_bundle(device, handle, affine("2.edgectl", precision="int8")).release
    start = time.monotonic()
    assert call_runner(device, handle, "rollback", {})["current"] == first
    assert time.monotonic() - start < 5.0
    assert status(device, handle) == (first, second)
    module = device.root / "releases" / second / "module.vmfb"
    module.chmod(0o644)
    module.write_bytes(b"rotten")
    with pytest.raises(DeviceError, match="is damaged"):
        call_runner(device, handle, "rollback", {})
    assert status(device, handle) == (first, second)


def test_deploying_again_repairs_a_damaged_release(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    bundle = affine()
    release = push_bundle(device, handle, bundle).release
    module = device.root / "releases" / release / "module.vmfb"
    intact = module.read_bytes()
    module.chmod(0o644)
    module.write_bytes(intact[:-1] + b"?")
    with pytest.raises(DeviceError, match="is damaged"):
        call_runner(device, handle, "verify", {})
    assert push_bundle(device, handle, bundle).payload_bytes > 0
    assert call_runner(device, handle, "verify", {})["intact"] is True
    assert run_release(device, handle, RunRequest(release=release)).latency is not None


def test_collection_keeps_current_previous_and_pinned(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    releases = [
        push_bundle(device, handle, affine(f"{n}.edgectl", precision=n)).release
        for n in ("fp32", "int8", "fp16", "int4")
    ]
    call_runner(device, handle, "pin", {"release": releases[0]})
    dry = call_runner(device, handle, "gc", {"dry_run": True})
    assert dry["removed"] == [releases[1]]
    assert call_runner(device, handle, "gc", {})["removed"] == [releases[1]]
    kept = {r["release"] for r in call_runner(device, handle, "status", {})["releases"]}
    assert kept == {releases[0], releases[2], releases[3]}
    for release in kept:
        assert call_runner(device, handle, "verify", {"release": release})["intact"] is True


def test_collection_removes_versions_that_nothing_uses(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    push_bundle(device, handle, affine())
    for kind in ("runner", "env"):
        (device.root / kind / "0123456789abcdef").mkdir()
        (device.root / kind / "0123456789abcdef" / "old.py").write_text("x = 1")
    removed = collect_garbage(device, handle).removed
    assert set(removed) == {"runner/0123456789abcdef", "env/0123456789abcdef"}
    assert ready_handle(device).bytes_sent == 0


def test_a_device_is_asked_without_installing_anything(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    release = push_bundle(device, handle, affine()).release
    device.sent.clear()
    found = find_runner(device, python=sys.executable)
    status = device_status(device, found)
    assert status.current == release
    assert [r.name for r in status.releases] == ["tiny"]
    assert status.locked_by is None
    assert device.sent == []


def test_a_device_without_edgectl_says_so(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="nothing of edgectl is installed"):
        find_runner(LoopbackDevice(tmp_path / "edgectl"), python=sys.executable)


def test_uninstalling_everything_leaves_nothing(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    push_bundle(device, handle, affine())
    dry = call_runner(device, handle, "uninstall", {"everything": True, "dry_run": True})
    assert dry["freed_bytes"] > 0
    assert device.root.exists()
    call_runner(device, handle, "uninstall", {"everything": True})
    assert not device.root.exists()


def test_the_current_release_is_not_uninstalled_by_mistake(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    release = push_bundle(device, handle, affine()).release
    with pytest.raises(UsageError, match="is the current one"):
        call_runner(device, handle, "uninstall", {"release": release})


def test_a_torn_line_of_the_audit_log_is_skipped(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    push_bundle(device, handle, affine("1.edgectl"))
    with (device.root / "audit.jsonl").open("ab") as file:
        file.write(b'{"event": "inst')
    push_bundle(device, handle, affine("2.edgectl", precision="int8"))
    assert events(device, handle) == ["install", "healthy", "install", "healthy"]
