"""Starting, swapping, crashing, hanging and stopping, with clients at work."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from running_service import AFFINE_REQUEST, RunningService
from slow_model import slow_bundle
from tiny_bundles import affine_bundle

from edgectl.errors import ConfigurationError, DeviceError, OutputMismatchError, UsageError
from edgectl.serving import ModelToServe
from edgectl.serving.load import ClosedLoop, LoadReport, infer_target, run_load

PATH = "/v2/models/affine/infer"
X = {"x": np.arange(32, dtype=np.float32).reshape(4, 8)}


def _until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.05)


def _under_load(service: RunningService, change: Callable[[], None]) -> LoadReport:
    """What became of the requests of four clients that kept asking during a change."""
    reports: list[LoadReport] = []
    target = infer_target(service.address, "affine", X)
    done = threading.Event()

    def load() -> None:
        while not done.is_set():
            reports.append(run_load(target, ClosedLoop(concurrency=4), duration_s=1.0))

    thread = threading.Thread(target=load)
    thread.start()
    try:
        change()
    finally:
        done.set()
        thread.join()
    counts = {s: sum(r.statuses.get(s, 0) for r in reports) for s in (200, 503)}
    requests, lost = sum(r.requests for r in reports), sum(r.lost for r in reports)
    assert sum(counts.values()) + lost == requests, [r.statuses for r in reports]
    return LoadReport(**{f: getattr(reports[0], f) for f in LoadReport.__slots__ if f not in ("requests", "lost", "statuses")}, requests=requests, lost=lost, statuses=counts)  # fmt: skip


def test_a_redeploy_under_load_loses_nothing(
    start: Callable[..., RunningService], tmp_path: Path
) -> None:
    service = start()
    first = service.now()

    def redeploy() -> None:
        for number in range(3):
            name = f"next{number}.edgectl"
            service.install({"affine": affine_bundle(tmp_path / name, name=f"v{number}")})
            service.start()

    report = _under_load(service, redeploy)
    assert report.lost == 0, report.failures
    assert report.statuses[200] == report.requests
    assert report.requests > 500
    now = service.now()
    assert now.pid == first.pid  # the socket's owner stayed
    assert now.worker_pid != first.worker_pid
    assert service.ask("GET", "/v2/models/affine").document["parameters"]["release"] == (
        service.models[0].release
    )


def test_a_release_that_computes_wrong_numbers_changes_nothing(
    start: Callable[..., RunningService], tmp_path: Path
) -> None:
    service = start()
    good = service.now().models
    wrong = affine_bundle(tmp_path / "wrong.edgectl", expected_offset=0.5)
    from edgectl.remote.push import push_bundle

    release = push_bundle(service.device, service.handle, wrong, health=False).release
    address = service.address
    with pytest.raises(OutputMismatchError, match="golden call 0 is wrong"):
        service.start(models=(ModelToServe(name="affine", release=release),))
    now = service.now()
    assert now.models == good
    assert now.address == address
    assert service.ask("POST", PATH, AFFINE_REQUEST).status == 200


def test_a_worker_that_is_killed_is_replaced(start: Callable[..., RunningService]) -> None:
    service = start()
    worker = service.now().worker_pid
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    # The socket is still there, so a request waits for the next worker and is answered.
    assert service.ask("POST", PATH, AFFINE_REQUEST).status == 200
    now = service.now()
    assert now.worker_pid != worker
    assert now.restarts == 1
    assert now.last_error is not None
    assert "ended by a kill" in now.last_error["message"]


def test_a_worker_that_hangs_is_replaced(start: Callable[..., RunningService]) -> None:
    service = start()
    worker = service.now().worker_pid
    assert worker is not None
    os.kill(worker, signal.SIGSTOP)
    _until(lambda: service.now().worker_pid not in (None, worker))
    assert service.ask("POST", PATH, AFFINE_REQUEST).status == 200


def test_without_its_supervisor_the_worker_ends(start: Callable[..., RunningService]) -> None:
    service = start()
    now = service.now()
    assert now.pid is not None
    os.kill(now.pid, signal.SIGKILL)
    _until(lambda: not Path(f"/proc/{now.worker_pid}/cmdline").exists() or
           not Path(f"/proc/{now.worker_pid}/cmdline").read_bytes())  # fmt: skip
    assert not service.now().running
    service.start()
    assert service.ask("POST", PATH, AFFINE_REQUEST).status == 200


def test_a_stop_answers_what_was_accepted(
    start: Callable[..., RunningService], tmp_path: Path
) -> None:
    service = start({"slow": slow_bundle(tmp_path / "slow.edgectl", rounds=80)})
    request = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [3.0]}]}
    answers: list[int] = []
    asking = [
        threading.Thread(
            target=lambda: answers.append(
                service.ask("POST", "/v2/models/slow/infer", request).status
            )
        )
        for _ in range(3)
    ]
    for thread in asking:
        thread.start()
    _until(lambda: service.ask("GET", "/v2/service").document["models"][0]["queue_depth"] >= 1)
    service.stop()
    for thread in asking:
        thread.join()
    assert answers == [200, 200, 200]
    assert not service.now().running


def test_served_releases_are_pinned_until_the_stop(start: Callable[..., RunningService]) -> None:
    service = start()
    pinned = service.device.root / "pinned"
    assert [p.name for p in pinned.iterdir()] == [service.models[0].release]
    service.stop()
    assert list(pinned.iterdir()) == []


def test_serving_writes_nothing_to_the_card(start: Callable[..., RunningService]) -> None:
    service = start()
    root = service.device.root

    def files() -> dict[str, int]:
        return {str(p): p.stat().st_mtime_ns for p in root.rglob("*") if p.is_file()}

    before = files()
    run_load(infer_target(service.address, "affine", X), ClosedLoop(concurrency=4), requests=400)
    service.ask("POST", PATH, body=b"nonsense")
    assert files() == before


def test_a_taken_port_is_named(start: Callable[..., RunningService], tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DeviceError, match=f"port {port}: Address already in use"):
            start(port=port)


def test_the_network_without_a_token_is_refused(start: Callable[..., RunningService]) -> None:
    with pytest.raises(ConfigurationError, match="without a token"):
        start(host="0.0.0.0")


@pytest.mark.parametrize("name", ["a b", "../x", "", "x\nEnvironment=A=B", "%i", "a" * 200])
def test_names_that_cannot_stand_in_an_address_are_refused(
    start: Callable[..., RunningService], name: str
) -> None:
    with pytest.raises(UsageError, match="cannot be a model's name"):
        start(models=(ModelToServe(name=name, release="0123456789abcdef"),))


def test_several_versions_of_a_model(start: Callable[..., RunningService], tmp_path: Path) -> None:
    service = start()
    old = service.models[0].release
    service.install({"affine": affine_bundle(tmp_path / "b.edgectl", name="second")})
    new = service.models[0].release
    service.start(
        models=tuple(
            ModelToServe(name="affine", version=v, release=r) for v, r in (("2", old), ("10", new))
        )
    )
    assert service.ask("GET", "/v2/models/affine").document["versions"] == ["2", "10"]
    answers = {
        path: service.ask("POST", f"/v2/models/affine{path}/infer", AFFINE_REQUEST).document
        for path in ("", "/versions/2")
    }
    assert answers[""]["model_version"] == "10"
    assert answers["/versions/2"]["model_version"] == "2"


def test_the_configuration_on_disk_is_private(start: Callable[..., RunningService]) -> None:
    service = start()
    config = service.device.root / "service" / "config.json"
    assert config.stat().st_mode & 0o077 == 0
    assert json.loads(config.read_bytes())["host"] == "127.0.0.1"
