"""Puts a service under load and tells what came of it.

    report = run_load(target, ClosedLoop(concurrency=4), duration_s=10)
    report = run_load(target, OpenLoop(rate_per_s=50), duration_s=10)

In a closed loop each client sends its next request when it has its answer: that gives the
throughput. In an open loop requests are due at times of their own (a Poisson process by default),
whatever the service does, and latency counts from when a request was due. So a service that
stalls is charged for all who would have come meanwhile ("coordinated omission", Gil Tene).

No request is ever sent twice: one without an answer counts as lost.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import h11

from edgectl.errors import ConnectionFailedError, UsageError
from edgectl.serving.client import encode_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

__all__ = [
    "ClosedLoop",
    "LoadReport",
    "LoadTarget",
    "OpenLoop",
    "generate_load",
    "infer_target",
    "run_load",
    "sweep",
]

READ_BYTES = 1 << 18
MAX_OPEN = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """The one request that is sent again and again."""

    host: str
    port: int
    path: str
    body: bytes = field(repr=False)
    headers: tuple[tuple[str, str], ...] = ()
    tls: bool = False
    method: str = "POST"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """``concurrency`` clients, each with one request under way."""

    concurrency: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoop:
    """Requests at a rate; ``poisson``: exponentially distributed gaps, else equal ones."""

    rate_per_s: float
    poisson: bool = True
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """Latencies (ms) are of the requests answered with 200, quantiles by linear interpolation.

    ``statuses`` counts answers by status; ``lost`` requests got none. ``failures`` says why, by
    kind.
    """

    mode: str
    concurrency: int | None
    rate_per_s: float | None
    duration_s: float
    requests: int
    statuses: dict[int, int]
    lost: int
    failures: dict[str, int]
    throughput_per_s: float
    mean_ms: float | None
    p50_ms: float | None
    p90_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    max_ms: float | None


def infer_target(
    url: str, model: str, inputs: Mapping[str, np.ndarray], *, token: str | None = None
) -> LoadTarget:
    """An inference with binary tensors both ways."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url} is no address of a service.", next_step="Write http://HOST:PORT.")
    body, headers = encode_request(inputs)
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return LoadTarget(
        host=parts.hostname,
        port=parts.port or (443 if parts.scheme == "https" else 8000),
        path=f"/v2/models/{model}/infer",
        body=body,
        headers=tuple(headers.items()),
        tls=parts.scheme == "https",
    )


def run_load(
    target: LoadTarget,
    mode: ClosedLoop | OpenLoop,
    *,
    duration_s: float | None = None,
    requests: int | None = None,
    warmup: int = 5,
) -> LoadReport:
    """Loads the service for a time or a number of requests, whichever comes first.

    Raises:
        ConnectionFailedError: it does not answer at all.
    """
    return asyncio.run(
        generate_load(target, mode, duration_s=duration_s, requests=requests, warmup=warmup)
    )


def sweep(
    target: LoadTarget, concurrencies: Sequence[int], *, duration_s: float
) -> tuple[LoadReport, ...]:
    """A closed loop at each concurrency, in order."""
    return tuple(
        run_load(target, ClosedLoop(concurrency=c), duration_s=duration_s) for c in concurrencies
    )


async def generate_load(
    target: LoadTarget,
    mode: ClosedLoop | OpenLoop,
    *,
    duration_s: float | None = None,
    requests: int | None = None,
    warmup: int = 5,
) -> LoadReport:
    """As `run_load`, for callers with an event loop of their own."""
    if duration_s is None and requests is None:
        raise UsageError("a load needs a duration or a number of requests")
    run = _Run(target, duration_s, requests)
    first = _Client(target)
    try:
        for _ in range(warmup):
            await first.ask()
    except (OSError, h11.ProtocolError, EOFError) as error:
        raise ConnectionFailedError(
            f"no answer from {target.host}:{target.port}: {str(error) or type(error).__name__}",
            next_step="edgectl serve status",
        ) from error
    finally:
        first.close()
    if isinstance(mode, ClosedLoop):
        await run.closed(mode)
        return run.report("closed", concurrency=mode.concurrency)
    await run.open(mode)
    return run.report("open", rate_per_s=mode.rate_per_s)


class _Client:
    """One connection, opened again after it was closed between two requests."""

    def __init__(self, target: LoadTarget):
        self._target = target
        self._context = ssl.create_default_context() if target.tls else None
        self._http: h11.Connection | None = None
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        headers = [
            ("host", f"{target.host}:{target.port}"),
            ("content-length", str(len(target.body))),
            *target.headers,
        ]
        self._request = h11.Request(method=target.method, target=target.path, headers=headers)

    async def ask(self) -> int:
        """Sends the request and reads the whole answer; its status."""
        if self._http is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(
                self._target.host, self._target.port, ssl=self._context, limit=READ_BYTES
            )
            self._http = h11.Connection(h11.CLIENT)
        http = self._http
        try:
            self._writer.write(http.send(self._request) or b"")
            http.send_with_data_passthrough(h11.Data(data=self._target.body))
            self._writer.write(self._target.body)
            http.send(h11.EndOfMessage())
            status = await self._answer(http)
        except BaseException:
            self.close()
            raise
        if http.our_state is h11.DONE and http.their_state is h11.DONE:
            http.start_next_cycle()
        else:
            self.close()
        return status

    async def _answer(self, http: h11.Connection) -> int:
        status = 0
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                data = await self._reader.read(READ_BYTES)
                if not data:
                    raise EOFError("the connection was closed without an answer")
                http.receive_data(data)
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.EndOfMessage):
                return status

    def close(self) -> None:
        """Ends the connection, if there is one."""
        if self._writer is not None:
            self._writer.close()
        self._http, self._writer = None, None


class _Run:
    def __init__(self, target: LoadTarget, duration_s: float | None, requests: int | None):
        self._target = target
        self._duration_s = duration_s
        self._most = requests
        self._sent = 0
        self._latencies_ms: list[float] = []
        self._statuses: Counter[int] = Counter()
        self._failures: Counter[str] = Counter()
        self._started = self._ended = 0.0

    def _take(self) -> bool:
        late = (
            self._duration_s is not None and time.perf_counter() - self._started >= self._duration_s
        )
        if late or (self._most is not None and self._sent >= self._most):
            return False
        self._sent += 1
        return True

    async def closed(self, mode: ClosedLoop) -> None:
        self._started = time.perf_counter()
        clients = [_Client(self._target) for _ in range(mode.concurrency)]

        async def work(client: _Client) -> None:
            while self._take():
                await self._one(client, time.perf_counter())
            client.close()

        await asyncio.gather(*(work(client) for client in clients))
        self._ended = time.perf_counter()

    async def open(self, mode: OpenLoop) -> None:
        if mode.rate_per_s <= 0:
            raise UsageError("the rate of an open loop is a number above 0")
        gaps = random.Random(mode.seed)  # noqa: S311 - a schedule, not a secret
        idle: list[_Client] = []
        under_way: set[asyncio.Task[None]] = set()
        self._started = due = time.perf_counter()

        async def one(client: _Client, due: float) -> None:
            await self._one(client, due)
            idle.append(client)

        while True:
            due += gaps.expovariate(mode.rate_per_s) if mode.poisson else 1 / mode.rate_per_s
            if self._duration_s is not None and due - self._started >= self._duration_s:
                break
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if self._most is not None and self._sent >= self._most:
                break
            self._sent += 1
            if len(under_way) >= MAX_OPEN:
                self._failures["too many open requests"] += 1
                continue
            task = asyncio.create_task(one(idle.pop() if idle else _Client(self._target), due))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)
        self._ended = time.perf_counter()
        for client in idle:
            client.close()

    async def _one(self, client: _Client, due: float) -> None:
        try:
            status = await client.ask()
        except (OSError, h11.ProtocolError, EOFError) as error:
            self._failures[type(error).__name__] += 1
            return
        self._statuses[status] += 1
        if status == 200:
            self._latencies_ms.append((time.perf_counter() - due) * 1e3)

    def report(
        self, mode: str, *, concurrency: int | None = None, rate_per_s: float | None = None
    ) -> LoadReport:
        ordered = sorted(self._latencies_ms)
        seconds = self._ended - self._started
        return LoadReport(
            mode=mode,
            concurrency=concurrency,
            rate_per_s=rate_per_s,
            duration_s=seconds,
            requests=self._sent,
            statuses=dict(sorted(self._statuses.items())),
            lost=sum(self._failures.values()),
            failures=dict(self._failures),
            throughput_per_s=len(ordered) / seconds if seconds > 0 else 0.0,
            mean_ms=sum(ordered) / len(ordered) if ordered else None,
            p50_ms=_quantile(ordered, 0.5),
            p90_ms=_quantile(ordered, 0.9),
            p99_ms=_quantile(ordered, 0.99),
            p999_ms=_quantile(ordered, 0.999),
            max_ms=ordered[-1] if ordered else None,
        )


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    if not ordered:
        return None
    at = (len(ordered) - 1) * share
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
