"""Bad networks: refused, silent, slow, stuck, cut and corrupted connections."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgectl.errors import ConnectionFailedError
from edgectl.remote.ssh import connect
from edgectl.remote.ssh_options import SshOptions
from support.password_server import PasswordServer, running
from support.sshd import Sshd, free_port, running_sshd
from support.toxic_proxy import ToxicProxy, Toxics, silent_listener

Options = Callable[..., SshOptions]


def through(proxy: ToxicProxy, sshd: Sshd, options_for: Options, **changes: object) -> SshOptions:
    """Options for a connection through the proxy, under which the host key is known."""
    options = options_for(sshd, **changes)
    with (options.home / ".ssh" / "known_hosts").open("a") as file:
        file.write(f"[127.0.0.1]:{proxy.port} {sshd.known_line.split(' ', 1)[1]}")
    return options


def address(proxy: ToxicProxy, sshd: Sshd) -> str:
    return f"{sshd.user}@127.0.0.1:{proxy.port}"


def test_refused_port(options_for: Options) -> None:
    with pytest.raises(ConnectionFailedError, match="refused the connection") as caught:
        connect(f"pi@127.0.0.1:{free_port()}", options=options_for())
    assert "no SSH server" in (caught.value.cause or "")
    assert caught.value.exit_code == 6


def test_unknown_host(options_for: Options) -> None:
    with pytest.raises(ConnectionFailedError, match="cannot find the host 'no-such"):
        connect("pi@no-such-host.invalid", options=options_for())


def test_address_that_does_not_answer(options_for: Options) -> None:
    with socket.socket() as full:  # a backlog that is full drops what else comes
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", port))
            started = time.monotonic()
            with pytest.raises(ConnectionFailedError, match=r"no answer .* within 0\.5 s"):
                connect(f"pi@127.0.0.1:{port}", options=options_for(connect_timeout_s=0.5))
            assert time.monotonic() - started < 2
        finally:
            for one in waiting:
                one.close()


def test_port_that_accepts_and_says_nothing(options_for: Options) -> None:
    with silent_listener() as port:
        started = time.monotonic()
        with pytest.raises(ConnectionFailedError, match="said nothing for 1 s") as caught:
            connect(f"pi@127.0.0.1:{port}", options=options_for(banner_timeout_s=1.0))
        assert time.monotonic() - started < 3
    assert "--ssh-timeout" in (caught.value.next_step or "")


def test_slow_device_is_reached_with_a_longer_banner_timeout(
    sshd: Sshd, options_for: Options
) -> None:
    with ToxicProxy(sshd.port, Toxics(latency_s=0.4)) as proxy:
        with pytest.raises(ConnectionFailedError, match="said nothing"):
            connect(
                address(proxy, sshd),
                options=through(proxy, sshd, options_for, banner_timeout_s=0.3),
            )
        proxy.toxics.latency_s = 0.2
        connect(
            address(proxy, sshd), options=through(proxy, sshd, options_for, banner_timeout_s=5.0)
        ).close()


def test_something_else_than_ssh(options_for: Options) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.0 400 Bad Request\r\n" * 200)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(ConnectionFailedError) as caught:
            connect(
                f"pi@127.0.0.1:{port}",
                options=options_for(banner_timeout_s=2.0, connect_attempts=1),
            )
    assert "does not speak SSH" in caught.value.message


def test_server_that_hangs_up_at_once_gets_a_second_chance(
    sshd: Sshd, options_for: Options
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        accepted: list[int] = []

        def hang_up() -> None:
            for _ in range(2):
                server.accept()[0].close()
                accepted.append(1)

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(ConnectionFailedError, match="closed the connection before") as caught:
            connect(f"pi@127.0.0.1:{port}", options=options_for())
        assert len(accepted) == 2
        assert type(caught.value) is ConnectionFailedError


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("Ciphers aes128-cbc,3des-cbc", "cipher aes128-cbc, 3des-cbc"),
        ("MACs hmac-sha1,hmac-md5", "hmac-md5"),
        ("KexAlgorithms diffie-hellman-group14-sha1", "diffie-hellman-group14-sha1"),
    ],
)
def test_weak_algorithms_are_refused_and_named(
    options_for: Options, tmp_path: Path, setting: str, named: str
) -> None:
    with running_sshd(tmp_path / "weak", settings=[setting]) as weak:
        with pytest.raises(ConnectionFailedError, match="not safe") as caught:
            connect(weak.destination, options=options_for(weak))
        assert named in caught.value.message
        assert "Accepted" not in weak.log, "refused before anybody logged in"


def test_peer_that_vanishes_during_a_command_is_noticed(sshd: Sshd, options_for: Options) -> None:
    with ToxicProxy(sshd.port) as proxy:
        options = through(proxy, sshd, options_for, keepalive_s=0.3, dead_peer_s=1.2)
        with connect(address(proxy, sshd), options=options) as device:
            assert device.run(["sleep", "2"], timeout_s=20).exit_code == 0, "silence is no death"
            proxy.toxics.blackhole = True
            started = time.monotonic()
            with pytest.raises(ConnectionFailedError) as caught:
                device.run(["sleep", "5"], timeout_s=30)
            assert time.monotonic() - started < 5
            assert "1.2 s" in (caught.value.cause or "")


def test_command_on_a_stuck_connection_ends_in_time(sshd: Sshd, options_for: Options) -> None:
    with ToxicProxy(sshd.port) as proxy:
        options = through(proxy, sshd, options_for, channel_timeout_s=1.0)
        with connect(address(proxy, sshd), options=options) as device:
            proxy.toxics.blackhole = True
            started = time.monotonic()
            with pytest.raises(ConnectionFailedError):
                device.run(["true"], timeout_s=30)
            assert time.monotonic() - started < 3


def test_stalled_upload_is_noticed_and_goes_on_afterwards(
    sshd: Sshd, options_for: Options, tmp_path: Path
) -> None:
    data = os.urandom(6_000_000)
    target = tmp_path / "file"
    with ToxicProxy(sshd.port, Toxics(blackhole_after=3_000_000)) as proxy:
        options = through(proxy, sshd, options_for)
        with connect(address(proxy, sshd), options=options) as device:
            started = time.monotonic()
            with pytest.raises(ConnectionFailedError, match="stood still for 1 s"):
                device.put(data, str(target), timeout_s=1.0)
            assert time.monotonic() - started < 5
    assert not target.exists()
    with connect(sshd.destination, options=options_for(sshd)) as device:
        offset = device.partial_size(str(target))
        assert offset > 1_000_000
        assert device.put(data, str(target), offset=offset) == 6_000_000 - offset
    assert target.read_bytes() == data


def test_upload_that_is_cut_again_and_again_sends_little_twice(
    sshd: Sshd, options_for: Options, tmp_path: Path
) -> None:
    data = os.urandom(8_000_000)
    target = tmp_path / "file"
    breaks = 0
    with ToxicProxy(sshd.port, Toxics(reset_after=2_500_000)) as proxy:
        options = through(proxy, sshd, options_for)
        while True:
            with connect(address(proxy, sshd), options=options) as device:
                try:
                    device.put(data, str(target), offset=device.partial_size(str(target)))
                    break
                except ConnectionFailedError:
                    breaks += 1
                    assert not target.exists()
        assert breaks >= 3
        assert proxy.bytes_up < 1.02 * len(data) + breaks * (1 << 20) * 1.1
    assert target.read_bytes() == data


def test_slow_sliced_link_completes(sshd: Sshd, options_for: Options, tmp_path: Path) -> None:
    """150 ms each way, 1 Mbit/s, small pieces: nothing times out while bytes still move."""
    data = os.urandom(50_000)
    toxics = Toxics(latency_s=0.15, bytes_per_s=125_000, slice_bytes=300)
    with (
        ToxicProxy(sshd.port, toxics) as proxy,
        connect(address(proxy, sshd), options=through(proxy, sshd, options_for)) as device,
    ):
        assert device.put(data, str(tmp_path / "file"), timeout_s=3.0) == len(data)
        assert device.get(str(tmp_path / "file"), timeout_s=3.0) == data


def test_flipped_bit_ends_the_connection_and_not_in_the_file(
    sshd: Sshd, options_for: Options, tmp_path: Path
) -> None:
    with ToxicProxy(sshd.port, Toxics(flip_bit_at=500_000)) as proxy:
        options = through(proxy, sshd, options_for)
        with (
            connect(address(proxy, sshd), options=options) as device,
            pytest.raises(ConnectionFailedError),
        ):
            device.put(os.urandom(1_000_000), str(tmp_path / "file"))
    assert not (tmp_path / "file").exists()


def test_stalled_download(sshd: Sshd, options_for: Options, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(4_000_000))
    with ToxicProxy(sshd.port, Toxics(bytes_per_s=2_000_000)) as proxy:
        options = through(proxy, sshd, options_for)
        with connect(address(proxy, sshd), options=options) as device:
            threading.Timer(0.5, lambda: setattr(proxy.toxics, "blackhole", True)).start()
            with pytest.raises(ConnectionFailedError, match="stood still"):
                device.get(str(tmp_path / "file"), timeout_s=1.0)


def test_cut_anywhere_during_login_is_a_connection_error(sshd: Sshd, options_for: Options) -> None:
    with ToxicProxy(sshd.port) as proxy:
        options = through(proxy, sshd, options_for, connect_attempts=1)
        connect(address(proxy, sshd), options=options).close()
        login_bytes = proxy.bytes_up
        for share in (0.01, 0.3, 0.5, 0.6, 0.7, 0.8):
            proxy.toxics.reset_after = int(share * login_bytes)
            with pytest.raises(ConnectionFailedError) as caught:
                connect(address(proxy, sshd), options=options)
            assert caught.value.next_step, share


def test_stuck_anywhere_during_login_ends_in_time(sshd: Sshd, options_for: Options) -> None:
    limits = {"connect_timeout_s": 1.0, "banner_timeout_s": 1.0, "auth_timeout_s": 1.0}
    with ToxicProxy(sshd.port) as proxy:
        options = through(proxy, sshd, options_for, channel_timeout_s=1.0, **limits)
        connect(address(proxy, sshd), options=options).close()
        login_bytes = proxy.bytes_up
        for share in (0.01, 0.5, 0.7, 0.8, 0.9):
            proxy.toxics.blackhole = False
            proxy.toxics.blackhole_after = proxy.bytes_up + int(share * login_bytes)
            started = time.monotonic()
            with pytest.raises(ConnectionFailedError) as caught:
                connect(address(proxy, sshd), options=options).run(["true"], timeout_s=1.0)
            assert time.monotonic() - started < 4, share
            assert caught.value.next_step, share


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that is full after a few kilobytes, as on a device with little memory."""
    from edgectl.remote import tcp

    tune = tcp._tune

    def tune_small(connection: socket.socket, dead_peer_s: float) -> None:
        tune(connection, dead_peer_s)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)

    monkeypatch.setattr(tcp, "_tune", tune_small)


def test_socket_that_takes_no_more_bytes(
    sshd: Sshd, options_for: Options, tmp_path: Path, small_buffers: None
) -> None:
    """paramiko's writes have no limit of their own."""
    toxics = Toxics(blackhole_after=500_000)
    with ToxicProxy(sshd.port, toxics, receive_buffer=4096) as proxy:
        options = through(proxy, sshd, options_for)
        with connect(address(proxy, sshd), options=options) as device:
            started = time.monotonic()
            with pytest.raises(ConnectionFailedError, match=r"stood still for 0\.5 s"):
                device.put(os.urandom(8_000_000), str(tmp_path / "file"), timeout_s=0.5)
            assert time.monotonic() - started < 6


def test_ctrl_c_is_quick_even_when_the_network_is_stuck(
    sshd: Sshd, options_for: Options, tmp_path: Path, small_buffers: None
) -> None:
    with ToxicProxy(sshd.port, Toxics(blackhole_after=500_000), receive_buffer=4096) as proxy:
        device = connect(address(proxy, sshd), options=through(proxy, sshd, options_for))
        timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            device.put(os.urandom(8_000_000), str(tmp_path / "file"), timeout_s=60.0)
        device.close()
        assert time.monotonic() - started < 12
    assert not (tmp_path / "file").exists()


def test_ctrl_c_while_connecting(options_for: Options) -> None:
    with silent_listener() as port:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            connect(f"pi@127.0.0.1:{port}", options=options_for())
        assert time.monotonic() - started < 3


def test_prompts_do_not_count_as_silence(options_for: Options, home: Path) -> None:
    """Somebody who looks for the password is not a broken connection."""
    with running(PasswordServer()) as server:
        (home / ".ssh" / "known_hosts").write_text(server.known_line)

        def slow(_prompt: str) -> str:
            time.sleep(1.5)
            return "raspberry"

        options = options_for(ask=slow, auth_timeout_s=1.0, dead_peer_s=1.0, keepalive_s=0.3)
        connect(f"pi@127.0.0.1:{server.port}", options=options).close()
