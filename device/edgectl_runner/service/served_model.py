"""One model that is served: engines in threads of their own behind a bounded queue.

    model = ServedModel.load(name="cat", version="1", manifest=manifest, folder=folder, ...)
    values = await model.infer(request, deadline)

The event loop never computes and a computing thread never touches a socket. The runtime lets go
of the interpreter while it computes, so health answers stay quick under load.
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgectl_runner.contract import EntryPoint, Manifest
from edgectl_runner.engine import Engine, Value
from edgectl_runner.execution import check_golden, load_engine
from edgectl_runner.failures import MISMATCH, RunnerError
from edgectl_runner.service.inference import InferenceRequest
from edgectl_runner.service.messages import HttpError
from edgectl_runner.service.settings import Limits
from edgectl_runner.service.statistics import ModelStatistics
from edgectl_runner.tensors import load_npy

__all__ = ["ServedModel"]


@dataclass(slots=True)
class _Job:
    request: InferenceRequest
    deadline: float
    queued_ns: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[list[Value]]
    abandoned: bool = False


@dataclass(slots=True)
class _Session:
    states: tuple[Any, ...]
    used: float


class ServedModel:
    """A model with its queue, its threads and its statistics."""

    def __init__(
        self,
        name: str,
        version: str,
        release: str,
        manifest: Manifest,
        engines: list[Engine],
        limits: Limits,
    ):
        self.name = name
        self.version = version
        self.release = release
        self.manifest = manifest
        self.limits = limits
        self.statistics = ModelStatistics()
        self._engines = engines
        self._queue: queue.Queue[_Job | None] = queue.Queue(limits.queue_capacity)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._busy_since: dict[int, float] = {}
        self._threads = [
            threading.Thread(target=self._work, args=(e,), name=f"{name}-{i}", daemon=True)
            for i, e in enumerate(engines)
        ]
        for thread in self._threads:
            thread.start()

    @classmethod
    def load(
        cls,
        *,
        name: str,
        version: str,
        release: str,
        manifest: Manifest,
        folder: Path,
        contexts: int,
        threads: int | None,
        limits: Limits,
    ) -> ServedModel:
        """Loads, checks the golden calls, and makes every context compute once before it counts.

        A stateful model has one context: the calls of a session are in order.

        Raises:
            RunnerError: it cannot be loaded, or computes something else than PyTorch did.
        """
        entry = manifest.entry_points[0]
        count = 1 if entry.states else contexts
        if threads is None and count > 1:
            threads = 1
        engines = [load_engine(manifest, folder, entry, threads) for _ in range(count)]
        for comparison in check_golden(manifest, folder, engines[0], 0):
            if not comparison.passed:
                raise RunnerError(
                    f"model {name}: output {comparison.name!r} of golden call {comparison.call} "
                    f"is wrong: {comparison.reason}",
                    code=MISMATCH,
                    next_step="deploy the model again",
                )
        for engine in engines[1:]:
            _warm(engine, manifest, folder)
        for engine in engines:
            engine.reset()
        return cls(name, version, release, manifest, engines, limits)

    @property
    def entry(self) -> EntryPoint:
        """The function that is served, with its signature."""
        return self.manifest.entry_points[0]

    @property
    def queue_depth(self) -> int:
        """Requests that wait for a context."""
        return self._queue.qsize()

    @property
    def contexts(self) -> int:
        """How many calls run at the same time."""
        return len(self._engines)

    @property
    def session_count(self) -> int:
        """Open sessions of a stateful model."""
        return len(self._sessions)

    def hung(self, now: float) -> bool:
        """Whether some computation has taken longer than the limit."""
        return any(now - t > self.limits.hang_timeout_s for t in list(self._busy_since.values()))

    async def infer(self, request: InferenceRequest) -> list[Value]:
        """Waits for a context and computes.

        Raises:
            HttpError: 503 the queue is full; 504 it took too long; 4xx the session is unknown.
        """
        limit = self.limits.request_timeout_s
        seconds = limit if request.timeout_s is None else min(limit, request.timeout_s)
        loop = asyncio.get_running_loop()
        job = _Job(
            request=request,
            deadline=time.monotonic() + seconds,
            queued_ns=time.perf_counter_ns(),
            loop=loop,
            future=loop.create_future(),
        )
        try:
            self._queue.put_nowait(job)
        except queue.Full:
            self.statistics.rejected += 1
            raise HttpError(
                503, "the queue is full", headers={"retry-after": str(self._retry_after_s())}
            ) from None
        timer = loop.call_later(seconds, self._expire, job)
        try:
            return await job.future
        finally:
            # Also when the client went away: a job that waits is then never computed.
            job.abandoned = True
            timer.cancel()

    def close(self) -> None:
        """Ends the threads after what is queued, and frees the engines."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._sessions.clear()
        for engine in self._engines:
            engine.close()

    def _retry_after_s(self) -> int:
        waiting = self._queue.qsize() * self.statistics.mean_compute_s() / self.contexts
        return max(1, math.ceil(waiting))

    def _expire(self, job: _Job) -> None:
        job.abandoned = True
        if not job.future.done():
            self.statistics.expired += 1
            job.future.set_exception(HttpError(504, "the request's deadline has passed"))

    def _work(self, engine: Engine) -> None:
        me = threading.get_ident()
        while (job := self._queue.get()) is not None:
            if job.abandoned or time.monotonic() > job.deadline:
                self.statistics.abandoned += 1
                continue
            self._busy_since[me] = time.monotonic()
            started = time.perf_counter_ns()
            outcome: list[Value] | Exception
            try:
                outcome = self._compute(engine, job, started)
            except HttpError as error:
                outcome = error
            except Exception as error:  # noqa: BLE001 - the thread must live on
                self.statistics.record_failure(time.perf_counter_ns() - started)
                outcome = error
            del self._busy_since[me]
            job.loop.call_soon_threadsafe(_settle, job.future, outcome)
            del job, outcome

    def _compute(self, engine: Engine, job: _Job, started_ns: int) -> list[Value]:
        session = self._enter_session(engine, job.request) if self.entry.states else None
        prepared = engine.prepare(job.request.inputs)
        arguments, results = engine.arguments(prepared), engine.results()
        before = time.perf_counter_ns()
        engine.invoke(arguments, results)
        after = time.perf_counter_ns()
        values = engine.outputs(prepared, results)
        if session is not None:
            engine.keep_states(results)
            session.states = engine.saved_states()
        self.statistics.record(
            queue_ns=started_ns - job.queued_ns,
            input_ns=before - started_ns,
            infer_ns=after - before,
            output_ns=time.perf_counter_ns() - after,
        )
        return values

    def _enter_session(self, engine: Engine, request: InferenceRequest) -> _Session:
        """Puts the states of the request's session into the engine.

        Without a sequence a call begins and ends at the first states, as in a fresh model.
        """
        now = time.monotonic()
        for other, old in list(self._sessions.items()):
            if now - old.used <= self.limits.session_idle_s:
                break  # the least recently used come first
            del self._sessions[other]
        name = request.sequence
        if name is None:
            engine.reset()
            return _Session(states=(), used=now)
        found = self._sessions.get(name)
        if request.sequence_start or found is None:
            if not request.sequence_start:
                raise HttpError(
                    400, "there is no such session (any more); begin one with 'sequence_start'"
                )
            if found is None and len(self._sessions) >= self.limits.max_sessions:
                raise HttpError(503, "too many open sessions", headers={"retry-after": "1"})
            engine.reset()
            found = _Session(states=engine.saved_states(), used=now)
        engine.restore(found.states)
        found.used = now
        self._sessions[name] = found
        self._sessions.move_to_end(name)
        if request.sequence_end:
            del self._sessions[name]
        return found


def _settle(future: asyncio.Future[list[Value]], outcome: list[Value] | Exception) -> None:
    if future.done():  # the client went away, or the deadline passed, while it was computed
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _warm(engine: Engine, manifest: Manifest, folder: Path) -> None:
    for call in manifest.golden:
        if call.entry_point == 0:
            specs = engine.entry.inputs
            engine.call([load_npy(folder / n, s) for n, s in zip(call.inputs, specs, strict=True)])
            return
    if all(None not in spec.shape for spec in engine.entry.inputs):
        engine.call([np.zeros(s.shape, s.dtype) for s in engine.entry.inputs])  # type: ignore[arg-type]
