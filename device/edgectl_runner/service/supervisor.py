"""Owns the listening socket and keeps one worker behind it.

    python3 -m edgectl_runner.service.supervisor ROOT

A redeploy (SIGHUP) starts a second worker on the same socket; once that is ready the first one
stops accepting and answers what it has. A connection that waits in the socket's queue belongs to
neither, so none is lost. A configuration that does not come up is given up, and the one before it
goes on. This process loads neither NumPy nor the runtime.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from edgectl_runner.durable import fsync_directory
from edgectl_runner.failures import BUSY, DEVICE, RunnerError
from edgectl_runner.process_facts import is_emulated
from edgectl_runner.service.journal import PROBLEM, log
from edgectl_runner.service.notify import notify, watchdog_interval_s
from edgectl_runner.service.places import Places, ServiceState, write_state
from edgectl_runner.service.settings import ServiceConfig, read_config
from edgectl_runner.service.worker_process import WorkerProcess

__all__ = ["Supervisor", "main"]

TICK_S = 0.25
LOAD_TIMEOUT_S = 900.0
BEAT_TIMEOUT_S = 8.0
EMULATED_BEAT_TIMEOUT_S = 60.0
MAX_FAILURES = 5
FAILURE_WINDOW_S = 120.0
BACKLOG = 512


def main(arguments: list[str]) -> int:
    """Runs until stopped; 0 after a stop, 1 when the service cannot be kept up."""
    places = Places(Path(arguments[0]))
    try:
        with _locked(places):
            return Supervisor(places).run()
    except RunnerError as error:
        log(error.message, priority=PROBLEM)
        return error.code


@contextlib.contextmanager
def _locked(places: Places) -> Any:
    descriptor = os.open(places.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunnerError("the service runs already", code=BUSY) from None
        yield
    finally:
        os.close(descriptor)


class Supervisor:
    """The state machine: at most one worker serves, one may be getting ready, others drain."""

    def __init__(self, places: Places):
        self._places = places
        self._current: WorkerProcess | None = None
        self._candidate: WorkerProcess | None = None
        self._draining: list[WorkerProcess] = []
        self._listening: dict[tuple[str, int], socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        self._reload = False
        self._restarts = 0
        self._restart_at: float | None = None
        self._failures: list[float] = []
        self._error: dict[str, Any] | None = None
        self._attempt = ""
        self._exit_code: int | None = None
        self._watchdog_s = watchdog_interval_s()
        self._watchdog_at = 0.0
        self._beat_timeout_s = EMULATED_BEAT_TIMEOUT_S if is_emulated() else BEAT_TIMEOUT_S

    def run(self) -> int:
        """Until SIGTERM, or until the workers keep failing."""
        reading, writing = socket.socketpair()
        for end in (reading, writing):
            end.setblocking(False)
        signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        for number, action in (
            (signal.SIGTERM, self._on_stop),
            (signal.SIGINT, self._on_stop),
            (signal.SIGHUP, self._on_reload),
            (signal.SIGCHLD, lambda *_: None),
        ):
            signal.signal(number, action)
        self._selector.register(reading, selectors.EVENT_READ)
        self._reload = True
        while self._exit_code is None:
            self._tick()
            for key, _ in self._selector.select(TICK_S):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        reading.recv(4096)
                else:
                    key.data.read_messages()
        return self._exit_code

    def _on_stop(self, *_: object) -> None:
        self._stopping = True

    def _on_reload(self, *_: object) -> None:
        self._reload = True

    # --- the state machine -------------------------------------------------------------------

    def _tick(self) -> None:
        now = time.monotonic()
        if self._stopping:
            self._stop()
            return
        if self._reload:
            self._reload = False
            self._try_next()
        if self._restart_at is not None and now >= self._restart_at:
            self._restart_at = None
            self._start(self._places.config)
        self._look_at_candidate(now)
        self._look_at_current(now)
        self._look_at_draining(now)
        self._feed_watchdog(now)

    def _try_next(self) -> None:
        path = self._places.next_config
        if self._candidate is not None:  # a newer configuration replaces one still loading
            self._candidate.kill()
            self._candidate.process.wait()
            self._drop(self._candidate)
            self._candidate = None
        if not path.exists():
            path = self._places.config
        with contextlib.suppress(RunnerError):
            self._attempt = read_config(path).attempt
        self._error = None
        self._start(path)

    def _start(self, path: Path) -> None:
        try:
            config = read_config(path)
            self._say("starting")
            listening = self._listen(config)
            worker = WorkerProcess(config, path, self._places.root, listening)
        except RunnerError as error:
            self._give_up(path, error.to_document()["error"])
            return
        self._selector.register(worker.socket, selectors.EVENT_READ, worker)
        self._candidate = worker

    def _listen(self, config: ServiceConfig) -> socket.socket:
        for (host, port), listening in self._listening.items():
            # Port 0 is any port, so the one that is open already.
            if host == config.host and config.port in (0, port):
                return listening
        address = (config.host, config.port)
        try:
            found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, _, _, _, place = found[0]
            listening = socket.create_server(place[:2], family=family, backlog=BACKLOG)
        except OSError as error:
            raise RunnerError(
                f"the service cannot listen on {config.host} port {config.port}: "
                f"{os.strerror(error.errno) if error.errno and error.errno > 0 else error}",
                code=DEVICE,
                cause="another program uses that port, or the address is not this device's",
                next_step="choose another one with --port",
            ) from error
        self._listening[config.host, listening.getsockname()[1]] = listening
        return listening

    def _look_at_candidate(self, now: float) -> None:
        worker = self._candidate
        if worker is None:
            return
        if worker.ready:
            self._promote(worker)
        elif worker.ended():
            self._candidate = None
            self._drop(worker)
            self._give_up(self._path_of(worker), worker.why())
        elif now - worker.started > LOAD_TIMEOUT_S:
            worker.kill()

    def _path_of(self, worker: WorkerProcess) -> Path:
        places = self._places
        with contextlib.suppress(RunnerError):
            if read_config(places.next_config).attempt == worker.config.attempt:
                return places.next_config
        return places.config

    def _promote(self, worker: WorkerProcess) -> None:
        if self._path_of(worker) == self._places.next_config:
            self._places.next_config.replace(self._places.config)
            fsync_directory(self._places.folder)
        if self._current is not None:
            self._current.stop()
            self._draining.append(self._current)
        self._current, self._candidate = worker, None
        for address, listening in list(self._listening.items()):
            if listening is not worker.listening:
                del self._listening[address]
                listening.close()
        self._say("ready")
        log(f"serving on {self._address()}", worker=worker.process.pid)
        notify("READY=1", f"STATUS=serving on {self._address()}")

    def _give_up(self, path: Path, error: dict[str, Any]) -> None:
        log(str(error["message"]), priority=PROBLEM)
        self._error = error
        if path == self._places.next_config:
            path.unlink(missing_ok=True)
            if self._current is not None:
                self._say("ready")
                return
            if self._places.config.exists():
                self._start(self._places.config)
                return
            self._end(1)
            return
        self._schedule_restart()

    def _look_at_current(self, now: float) -> None:
        worker = self._current
        if worker is None:
            return
        if worker.ended():
            self._current = None
            self._drop(worker)
            self._error = worker.why()
            log(str(self._error["message"]), priority=PROBLEM, worker=worker.process.pid)
            if self._candidate is None:
                self._schedule_restart()
        elif now - worker.last_beat > self._beat_timeout_s:
            log("the worker hangs and is killed", priority=PROBLEM, worker=worker.process.pid)
            worker.kill()

    def _schedule_restart(self) -> None:
        now = time.monotonic()
        self._failures = [t for t in self._failures if now - t < FAILURE_WINDOW_S] + [now]
        if len(self._failures) > MAX_FAILURES:
            self._end(1)
            return
        self._restarts += 1
        # The first restart is at once: what waits in the socket's queue is then hardly late.
        self._restart_at = now + (
            0.0 if len(self._failures) == 1 else 2.0 ** len(self._failures) / 4
        )
        self._say("starting")

    def _look_at_draining(self, now: float) -> None:
        for worker in list(self._draining):
            if worker.ended():
                self._draining.remove(worker)
                self._drop(worker)
            elif worker.kill_at is not None and now > worker.kill_at:
                worker.kill()

    def _stop(self) -> None:
        notify("STOPPING=1")
        workers = [w for w in (self._current, self._candidate, *self._draining) if w is not None]
        for worker in workers:
            if worker.kill_at is None:
                worker.stop()
        for worker in workers:
            remaining = max(0.0, (worker.kill_at or 0.0) - time.monotonic())
            try:
                worker.process.wait(remaining)
            except Exception:  # noqa: BLE001 - whatever it is, it must end now
                worker.kill()
                worker.process.wait()
        self._current = self._candidate = None
        self._error = None
        self._say("stopped")
        self._exit_code = 0

    def _end(self, code: int) -> None:
        self._say("failed")
        for worker in (self._candidate, *self._draining):
            if worker is not None:
                worker.kill()
        self._exit_code = code

    # --- small things ------------------------------------------------------------------------

    def _drop(self, worker: WorkerProcess) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(worker.socket)
        worker.close()

    def _feed_watchdog(self, now: float) -> None:
        # A worker that hangs is killed here; systemd's watchdog is for this process.
        if self._watchdog_s is not None and now >= self._watchdog_at:
            self._watchdog_at = now + self._watchdog_s
            notify("WATCHDOG=1")

    def _address(self) -> str | None:
        if self._current is None:
            return None
        host, port = self._current.listening.getsockname()[:2]
        scheme = "https" if self._current.config.tls_key else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def _say(self, state: str) -> None:
        write_state(
            self._places,
            ServiceState(
                pid=os.getpid(),
                state=state,
                attempt=self._attempt,
                address=self._address(),
                worker_pid=self._current.process.pid if self._current else None,
                restarts=self._restarts,
                error=self._error,
            ),
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
