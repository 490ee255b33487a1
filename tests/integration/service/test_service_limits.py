"""Clients that are slow, greedy, rude or too many; the service stays there for the others."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from running_service import AFFINE_REQUEST, RunningService, new_service
from slow_model import picture_bundle, slow_bundle
from tiny_bundles import affine_bundle

from edgectl.serving.client import encode_request

BODY = json.dumps(AFFINE_REQUEST).encode()
PATH = "/v2/models/affine/infer"
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n".encode()
DEADLINES = {"header_timeout_s": 1.0, "receive_timeout_s": 2.0, "idle_timeout_s": 1.5}
# What a busy machine may add to a deadline; the point is that it does not depend on the client.
SLACK_S = 2.0


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """A service with short deadlines and few connections."""
    folder = tmp_path_factory.mktemp("limited")
    service = new_service(folder)
    service.install(
        {
            "affine": affine_bundle(folder / "affine.edgectl"),
            "picture": picture_bundle(folder / "picture.edgectl"),
        }
    )
    service.start(limits={**DEADLINES, "max_connections": 20, "send_timeout_s": 1.0})
    yield service
    service.stop()


def _read_all(connection: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            data += part
    return data


def _trickle(connection: socket.socket, data: bytes, stop: threading.Event) -> None:
    with contextlib.suppress(OSError):
        for byte in data:
            if stop.wait(0.1):
                return
            connection.sendall(bytes([byte]))


@pytest.mark.parametrize(
    ("at_once", "slowly", "limit_s"),
    [
        (b"", b"", 1.0),
        (b"", HEAD * 50, 1.0),
        (HEAD, b"X-A: b\r\n" * 50, 1.0),
        (HEAD + b"Content-Length: 500\r\n\r\n", b"x" * 500, 2.0),
        (HEAD + b"Content-Length: 500\r\n\r\n", b"", 2.0),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 100, 2.0),
    ],
    ids=["nothing", "request line", "headers", "body", "no body", "chunks"],
)
def test_a_slow_sender_is_cut_off_on_time(
    limited: RunningService, at_once: bytes, slowly: bytes, limit_s: float
) -> None:
    stop = threading.Event()
    with limited.raw() as connection:
        started = time.monotonic()
        connection.sendall(at_once)
        thread = threading.Thread(target=_trickle, args=(connection, slowly, stop))
        thread.start()
        try:
            answer = _read_all(connection)
            took = time.monotonic() - started
        finally:
            stop.set()
            thread.join()
    assert limit_s - 0.3 < took < limit_s + SLACK_S
    assert not answer or answer.startswith(b"HTTP/1.1 408")
    assert limited.ask("GET", "/v2/health/live").status == 200


def test_a_client_that_does_not_read_its_answer_is_cut_off(limited: RunningService) -> None:
    x = np.zeros((1, 3, 224, 224), np.float32)
    body, headers = encode_request({"x": x})
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"POST /v2/models/picture/infer HTTP/1.1\r\nHost: x\r\n{lines}".encode()
    request += f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", limited.port))
        # More answers than the kernel takes in for a reader that does not read.
        with contextlib.suppress(ConnectionError, TimeoutError):
            connection.settimeout(0.5)
            for _ in range(20):
                connection.sendall(request)
        time.sleep(1.0 + SLACK_S)
        connection.settimeout(10)
        assert len(_read_all(connection)) < 20 * x.nbytes
    assert limited.ask("GET", "/v2/health/live").status == 200


@pytest.mark.parametrize("piece", [1000, 16384, 50_000, 1 << 20])
def test_a_picture_arrives_whole_however_it_is_cut(limited: RunningService, piece: int) -> None:
    x = np.random.default_rng(piece).normal(size=(1, 3, 224, 224)).astype(np.float32)
    body, headers = encode_request({"x": x})
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"POST /v2/models/picture/infer HTTP/1.1\r\nHost: x\r\n{lines}".encode()
    request += f"Content-Length: {len(body)}\r\n\r\n".encode() + body
    last = b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with limited.raw() as connection:
        stream = request + request + last
        sender = threading.Thread(
            target=lambda: [
                connection.sendall(stream[at : at + piece]) for at in range(0, len(stream), piece)
            ]
        )
        sender.start()
        answer = _read_all(connection)
        sender.join()
    assert answer.count(b"HTTP/1.1 200") == 3
    assert answer.count((x + 1).tobytes()) == 2


def test_an_idle_connection_is_closed(limited: RunningService) -> None:
    with limited.raw() as connection:
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        started = time.monotonic()
        answer = _read_all(connection)
    assert answer.startswith(b"HTTP/1.1 200")
    assert time.monotonic() - started < DEADLINES["idle_timeout_s"] + SLACK_S


def test_idle_connections_give_way_to_new_ones(limited: RunningService) -> None:
    idle = [limited.raw() for _ in range(60)]
    try:
        for _ in range(10):
            started = time.monotonic()
            assert limited.ask("GET", "/v2/health/live").status == 200
            assert time.monotonic() - started < 1.0
    finally:
        for connection in idle:
            connection.close()


def test_a_body_over_the_limit_is_refused_before_it_is_read(service: RunningService) -> None:
    with service.raw() as connection:
        connection.sendall(HEAD + b"Content-Length: 999999999\r\n\r\n")
        assert _read_all(connection).startswith(b"HTTP/1.1 413")
    with service.raw() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        assert _read_all(connection).startswith(b"HTTP/1.1 413")


def test_a_body_in_tiny_chunks_is_refused(service: RunningService) -> None:
    with service.raw() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"1\r\nx\r\n" * 5000)
        assert _read_all(connection).startswith(b"HTTP/1.1 400")


def test_chunks_of_an_ordinary_client_are_fine(service: RunningService) -> None:
    half = len(BODY) // 2
    with service.raw() as connection:
        connection.sendall(HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in (BODY[:half], BODY[half:], b""):
            connection.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        assert _read_all(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00" * 10 + b"\r\n\r\n", b"400"),
        (b"GET /v2 HTTP/1.1\r\n\r\n", b"400"),  # no Host
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\n" + b"A: " + b"b" * 40000 + b"\r\n\r\n", b"431"),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 9000 + b"\r\n", b"431"),
        (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", b"400"),
        (HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"40"),
        (HEAD + b"Content-Length: -5\r\n\r\n", b"400"),
        (HEAD + b"Transfer-Encoding: gzip\r\n\r\n", b"501"),
        (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", b"415"),
    ],
)
def test_what_is_not_proper_http_is_refused(
    service: RunningService, data: bytes, status: bytes
) -> None:
    with service.raw() as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
        assert _read_all(connection).startswith(b"HTTP/1.1 " + status)
    assert service.ask("GET", "/v2/health/live").status == 200


def test_pipelined_requests_are_answered_in_order(service: RunningService) -> None:
    one = HEAD + f"Content-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    last = b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with service.raw() as connection:
        connection.sendall(one * 3 + last)
        answer = _read_all(connection)
    assert answer.count(b"HTTP/1.1 200") == 4
    assert answer.count(b'"model_name":"affine"') == 3
    assert answer.rstrip().endswith(b"}")
    assert answer.rindex(b"extensions") > answer.rindex(b"model_name")


def test_expect_100_continue(service: RunningService) -> None:
    with service.raw() as connection:
        connection.sendall(
            HEAD + f"Content-Length: {len(BODY)}\r\nConnection: close\r\n".encode()
            + b"Expect: 100-continue\r\n\r\n"
        )  # fmt: skip
        assert connection.recv(1000).startswith(b"HTTP/1.1 100")
        connection.sendall(BODY)
        assert _read_all(connection).startswith(b"HTTP/1.1 200")


def test_without_the_token_nothing_but_health_and_the_page(
    start: Callable[..., RunningService],
) -> None:
    token = "correct horse"
    service = start(token=token)
    assert service.ask("GET", "/v2/health/live").status == 200
    assert service.ask("GET", "/").status == 200
    for path in ("/v2", "/v2/models/affine", "/metrics", "/openapi.json", "/v2/service"):
        assert service.ask("GET", path).status == 401
        assert service.ask("GET", path, Authorization="Bearer wrong").status == 401
        assert service.ask("GET", path, Authorization=f"Bearer {token}").status == 200
    assert service.ask("POST", PATH, AFFINE_REQUEST).status == 401
    authorized = service.ask("POST", PATH, AFFINE_REQUEST, Authorization=f"Bearer {token}")
    assert authorized.status == 200
    kept = (service.device.root / "service" / "config.json").read_text()
    assert token not in kept
    assert hashlib.sha256(token.encode()).hexdigest() in kept


@pytest.fixture
def slow(start: Callable[..., RunningService], tmp_path: Path) -> RunningService:
    """A model that computes for a good part of a second, and two places in its queue."""
    bundle = slow_bundle(tmp_path / "slow.edgectl")
    return start({"slow": bundle}, limits={"queue_capacity": 2}, threads=1)


SLOW_PATH = "/v2/models/slow/infer"


def _slow_request(**parameters: object) -> dict[str, object]:
    tensor = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}
    return {"inputs": [tensor], "parameters": parameters}


def test_overload_is_refused_at_once_and_health_stays_quick(slow: RunningService) -> None:
    answers: list[tuple[int, float, dict[str, str]]] = []

    def ask() -> None:
        started = time.monotonic()
        answer = slow.ask("POST", SLOW_PATH, _slow_request())
        answers.append((answer.status, time.monotonic() - started, answer.headers))

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    health = []
    while any(thread.is_alive() for thread in threads):
        started = time.monotonic()
        assert slow.ask("GET", "/v2/health/live").status == 200
        health.append(time.monotonic() - started)
        time.sleep(0.02)
    for thread in threads:
        thread.join()
    served = [a for a in answers if a[0] == 200]
    refused = [a for a in answers if a[0] == 503]
    assert len(served) + len(refused) == 20
    assert len(served) >= 3
    assert refused
    assert all(int(headers["retry-after"]) >= 1 for _, _, headers in refused)
    assert np.median([took for _, took, _ in refused]) < min(took for _, took, _ in served)
    assert np.median(health) < 0.1


def test_a_deadline_that_passes_in_the_queue_costs_no_computation(slow: RunningService) -> None:
    holder = threading.Thread(target=slow.ask, args=("POST", SLOW_PATH, _slow_request()))
    holder.start()
    time.sleep(0.1)
    answer = slow.ask("POST", SLOW_PATH, _slow_request(timeout=1000))
    holder.join()
    assert answer.status == 504
    assert slow.ask("POST", SLOW_PATH, _slow_request()).status == 200
    (stats,) = slow.ask("GET", "/v2/models/slow/stats").document["model_stats"]
    assert stats["inference_count"] == 2
    assert stats["expired_count"] == 1


def test_what_nobody_waits_for_is_not_computed(slow: RunningService) -> None:
    body = json.dumps(_slow_request()).encode()
    request = (
        f"POST {SLOW_PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    first = slow.raw()
    first.sendall(request)
    time.sleep(0.1)
    second = slow.raw()
    second.sendall(request)
    time.sleep(0.1)
    second.close()
    _ = first.recv(10)
    first.close()
    assert slow.ask("POST", SLOW_PATH, _slow_request()).status == 200
    (stats,) = slow.ask("GET", "/v2/models/slow/stats").document["model_stats"]
    assert stats["inference_count"] == 2
    assert stats["abandoned_count"] == 1
