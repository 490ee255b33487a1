"""Deployments over a real OpenSSH server, and over networks that break."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_bundles import empty_wheels

from edgectl.errors import AuthenticationError, BusyError, ConnectionFailedError
from edgectl.remote import reconnecting
from edgectl.remote.hold import held
from edgectl.remote.install import prepare_device
from edgectl.remote.push import push_bundle, run_release
from edgectl.remote.reconnecting import push_with_reconnects
from edgectl.remote.ssh import SshDevice, connect
from edgectl.remote.ssh_options import SshOptions
from edgectl_runner.contract import RunRequest
from support.sshd import Sshd, running_sshd
from support.toxic_proxy import ToxicProxy, Toxics

Bundles = Callable[..., Path]


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    settings = [f"SetEnv EDGECTL_ROOT={tmp_path / 'device' / 'edgectl'}"]
    with running_sshd(tmp_path / "sshd", settings=settings) as server:
        yield server


@pytest.fixture
def open_device(sshd: Sshd, tmp_path: Path) -> Callable[..., SshDevice]:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)

    def make(port: int | None = None, **changes: Any) -> SshDevice:
        line = sshd.known_line.split(" ", 1)[1]
        known = f"[127.0.0.1]:{port or sshd.port} {line}"
        (home / ".ssh" / "known_hosts").write_text(known)
        options = SshOptions(
            home=home,
            known_hosts_file=home / "known",
            system_config_file=home / "none",
            agent_socket=None,
            askpass=None,
            identity_file=sshd.user_key,
            warn=lambda _: None,
            **{"connect_timeout_s": 10.0, **changes},
        )
        return connect(f"{sshd.user}@127.0.0.1:{port or sshd.port}", options=options)

    return make


def prepare(device: SshDevice) -> Any:
    wheels = empty_wheels()
    return prepare_device(device, python=sys.executable, fetch=lambda _p, cache=None: wheels)


def test_deploy_twice_over_ssh(
    open_device: Callable[..., SshDevice], affine: Bundles, tmp_path: Path
) -> None:
    bundle = affine()
    with open_device() as device:
        handle = prepare(device)
        pushed = push_bundle(device, handle, bundle)
        assert pushed.healthy is True
        request = RunRequest(release=pushed.release, threads=1)
        report = run_release(device, handle, request, outputs=tmp_path / "o.npz")
        assert report.latency is not None
        with np.load(tmp_path / "o.npz") as outputs:
            assert float(outputs["y"][0, 0]) == 1.0
    with open_device() as device:
        assert prepare(device).bytes_sent == 0
        assert push_bundle(device, handle, bundle).payload_bytes == 0
    assert not list((tmp_path / "device" / "edgectl" / "incoming").iterdir())


def test_a_second_deployment_over_ssh_is_refused_in_time(
    open_device: Callable[..., SshDevice], affine: Bundles
) -> None:
    bundle = affine()
    with open_device() as first, open_device() as second:
        handle = prepare(first)
        with held(first, handle, who="ada@desk"):
            start = time.monotonic()
            with pytest.raises(BusyError, match="ada@desk"):
                push_bundle(second, handle, bundle)
            assert time.monotonic() - start < 2.0
        assert push_bundle(second, handle, bundle).release


def test_a_bandwidth_limit_is_kept(open_device: Callable[..., SshDevice], affine: Bundles) -> None:
    weights = np.random.default_rng(4).integers(0, 256, 3 << 20, dtype=np.uint8).tobytes()
    bundle = affine(extra={"weights.bin": weights})
    with open_device() as device:
        handle = prepare(device)
        start = time.monotonic()
        push_bundle(device, handle, bundle, bytes_per_s=1.5e6)
        assert time.monotonic() - start > 1.4


def test_a_reset_every_two_megabytes_completes(
    open_device: Callable[..., SshDevice],
    sshd: Sshd,
    affine: Bundles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconnecting, "LONGEST_DELAY_S", 1.0)
    weights = np.random.default_rng(3).integers(0, 256, 9 << 20, dtype=np.uint8).tobytes()
    bundle = affine(extra={"weights.bin": weights})
    with open_device() as device:
        handle = prepare(device)
    breaks: list[str] = []
    with ToxicProxy(sshd.port, Toxics(reset_after=2 << 20)) as proxy:
        pushed = push_with_reconnects(
            lambda: open_device(proxy.port), handle, bundle, notify=breaks.append
        )
        assert pushed.healthy is True
        # A break may cost 1 MiB.
        assert proxy.bytes_up < (9 << 20) + (len(breaks) + 1) * (1 << 20)
    assert len(breaks) >= 4
    current = tmp_path / "device" / "edgectl" / "current" / "weights.bin"
    assert current.read_bytes() == weights


def test_a_black_hole_ends_within_its_deadline_and_the_next_push_goes_on(
    open_device: Callable[..., SshDevice], sshd: Sshd, affine: Bundles
) -> None:
    weights = np.random.default_rng(5).integers(0, 256, 6 << 20, dtype=np.uint8).tobytes()
    bundle = affine(extra={"weights.bin": weights})
    with open_device() as device:
        handle = prepare(device)
    patient = {"connect_timeout_s": 1.0, "banner_timeout_s": 1.0, "keepalive_s": 0.5,
               "dead_peer_s": 2.0}  # fmt: skip
    with ToxicProxy(sshd.port, Toxics(blackhole_after=3 << 20)) as proxy:
        start = time.monotonic()
        with pytest.raises(ConnectionFailedError, match="bytes had arrived and stay there"):
            push_with_reconnects(
                lambda: open_device(proxy.port, **patient), handle, bundle, patience_s=6.0
            )
        # Patience, one dead connection and one that never answers.
        assert time.monotonic() - start < 30.0
    with open_device() as device:
        pushed = push_bundle(device, handle, bundle)
        assert pushed.healthy is True
        assert pushed.payload_bytes < 5 << 20, "what had arrived was used"


def test_bits_that_flip_on_the_way_cost_the_connection_and_nothing_else(
    open_device: Callable[..., SshDevice],
    sshd: Sshd,
    affine: Bundles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reconnecting, "LONGEST_DELAY_S", 1.0)
    weights = np.random.default_rng(6).integers(0, 256, 6 << 20, dtype=np.uint8).tobytes()
    bundle = affine(extra={"weights.bin": weights})
    with open_device() as device:
        handle = prepare(device)
    with ToxicProxy(sshd.port, Toxics(flip_bit_at=4 << 20)) as proxy:
        pushed = push_with_reconnects(lambda: open_device(proxy.port), handle, bundle)
        assert pushed.healthy is True
        assert proxy.bytes_up < (6 << 20) + (2 << 20)
    current = tmp_path / "device" / "edgectl" / "current" / "weights.bin"
    assert current.read_bytes() == weights


def test_a_login_that_is_refused_is_not_tried_again(affine: Bundles) -> None:
    calls = []

    def refused() -> SshDevice:
        calls.append(1)
        raise AuthenticationError("nobody is let in")

    with pytest.raises(AuthenticationError):
        push_with_reconnects(refused, None, affine())  # type: ignore[arg-type]
    assert len(calls) == 1


def test_current_is_never_absent_while_deployments_switch(
    open_device: Callable[..., SshDevice], affine: Bundles, tmp_path: Path
) -> None:
    link = tmp_path / "device" / "edgectl" / "current"
    with open_device() as device:
        handle = prepare(device)
        push_bundle(device, handle, affine("0.edgectl"))
        reads, problems, stop = 0, [], threading.Event()

        def read() -> None:
            nonlocal reads
            while not stop.is_set():
                reads += 1
                try:
                    folder = link.resolve(strict=True)
                    if not (folder / "manifest.json").exists():
                        problems.append("a release without manifest")
                except OSError as error:
                    problems.append(str(error))

        thread = threading.Thread(target=read)
        thread.start()
        try:
            for number in range(4):
                bundle = affine(f"{number}.edgectl", precision=f"p{number % 2}")
                push_bundle(device, handle, bundle, health=False)
        finally:
            stop.set()
            thread.join()
    assert reads > 1000
    assert problems == []
