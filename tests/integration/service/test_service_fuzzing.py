"""Whatever clients send, the service answers below 500 (or 503), stays up and keeps its memory.

``EDGECTL_FUZZ_REQUESTS`` sets how many raw requests are sent (100,000 for a long run).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from running_service import AFFINE_REQUEST, RunningService

from edgectl.serving.client import encode_request
from edgectl.serving.load import ClosedLoop, infer_target, run_load

REQUESTS = int(os.environ.get("EDGECTL_FUZZ_REQUESTS", "1500"))
X = {"x": np.arange(32, dtype=np.float32).reshape(4, 8)}
CHECKS = (
    *("not_a_server_error", "status_code_conformance"),
    *("content_type_conformance", "response_schema_conformance"),
)
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def _seeds() -> list[bytes]:
    body = json.dumps(AFFINE_REQUEST).encode()
    binary, headers = encode_request(X)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()

    def post(path: bytes, body: bytes, more: bytes = b"") -> bytes:
        length = str(len(body)).encode()
        head = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: " + length
        return head + b"\r\n" + more + b"\r\n" + body

    infer = b"/v2/models/affine/infer"
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:50], body[50:], b""))
    return [
        post(infer, body),
        post(infer, binary, lines),
        b"POST " + infer + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
        b"GET /v2/models/affine/versions/1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ]


def _mutated(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice((0, 1, 1, 2, 3, 8))):
        at = dice.randrange(len(changed) + 1)
        kind = dice.randrange(6)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            changed[at:at] = dice.randbytes(dice.choice((1, 2, 40)))
        elif kind == 2:
            del changed[at : at + dice.choice((1, 5, 100))]
        elif kind == 3:
            changed[at:at] = changed[at : at + 60] * dice.choice((1, 3, 50))
        elif kind == 4:
            words = (b"\r\n", b"\0", b"-1", b"1e999", b"[" * 200, b'"', b"../", b"%2e", b"9" * 30)
            changed[at:at] = dice.choice(words)
        elif digits := list(re.finditer(rb"\d+", bytes(changed))):
            found = dice.choice(digits)
            changed[found.start() : found.end()] = dice.choice((b"0", b"-1", b"99999999999", b"x"))
    return bytes(changed)


def _statuses(service: RunningService, data: bytes) -> list[int]:
    """Of the answers to those bytes; the client hangs up when it has waited a moment."""
    answer = b""
    with contextlib.suppress(ConnectionError, TimeoutError), service.raw(10) as connection:
        connection.sendall(data)
        connection.settimeout(0.05)
        with contextlib.suppress(TimeoutError):
            answer += connection.recv(65536)
        connection.settimeout(10)
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(65536):
            answer += part
    return [int(status) for status in STATUS.findall(answer)]


def _resident_kib(service: RunningService) -> int:
    pid = service.now().worker_pid
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]


def test_mutated_requests_never_give_an_internal_error(service: RunningService) -> None:
    dice = random.Random(7)
    seeds = _seeds()
    before = service.now()
    seen: set[int] = set()
    for number in range(REQUESTS):
        data = _mutated(dice.choice(seeds), dice)
        for status in _statuses(service, data):
            seen.add(status)
            assert status < 500 or status in (501, 503), (number, status, data)
    metrics = service.ask("GET", "/metrics").body.decode()
    assert "edgectl_internal_errors_total 0" in metrics.splitlines()
    # The fuzzer reaches both sides of the checks, and the worker is the one of the beginning.
    assert {200, 400, 404} <= seen
    assert service.now().worker_pid == before.worker_pid
    assert service.ask("POST", "/v2/models/affine/infer", AFFINE_REQUEST).status == 200


def test_memory_stays_flat(service: RunningService) -> None:
    """At most 1 MiB more per 100,000 requests; the allowance here is the noise of a short run."""
    target = infer_target(service.address, "affine", X)
    run_load(target, ClosedLoop(concurrency=4), requests=1500)
    before = _resident_kib(service)
    report = run_load(target, ClosedLoop(concurrency=4), requests=max(3000, REQUESTS))
    assert report.statuses == {200: report.requests}
    allowed_kib = 256 + 1024 * report.requests / 100_000
    assert _resident_kib(service) - before <= allowed_kib


@pytest.mark.slow
def test_the_schemas_own_fuzzer_finds_nothing(service: RunningService, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{service.address}/openapi.json"),
            *("--max-examples", "30", "--phases", "examples,coverage,fuzzing"),
            *("--checks", ",".join(CHECKS)),
        ],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
