"""The process that loads the models and serves them on a socket that it was handed.

    python3 -m edgectl_runner.service.worker CONFIG ROOT LISTENING_FD CONTROL_FD

It tells the supervisor over the control socket, a line each: ``ready``, ``beat`` once a second
while its event loop turns and no computation hangs, ``failed MESSAGE``. It stops when it is told
to (SIGTERM) or when the supervisor is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import signal
import socket
import ssl
import sys
import time
from pathlib import Path

from edgectl_runner.failures import CONFIGURATION, RunnerError
from edgectl_runner.processor import check_architecture
from edgectl_runner.service.application import InferenceApplication
from edgectl_runner.service.connection import Connection, Connections
from edgectl_runner.service.served_model import ServedModel
from edgectl_runner.service.settings import ServiceConfig, read_config
from edgectl_runner.store import Store

__all__ = ["main", "serve"]

BEAT_S = 1.0
BACKLOG = 128


def main(arguments: list[str]) -> int:
    """Runs the worker until it is stopped."""
    config_path, root, listening, control = arguments
    supervisor = socket.socket(fileno=int(control))
    try:
        config = read_config(Path(config_path))
        models = load_models(config, Store(Path(root)))
        # What is loaded stays: the collector need not look through it again and again.
        gc.collect()
        gc.freeze()
        asyncio.run(serve(config, models, socket.socket(fileno=int(listening)), supervisor))
    except RunnerError as error:
        _tell(supervisor, "failed " + json.dumps(error.to_document()))
        return error.code
    return 0


def load_models(config: ServiceConfig, store: Store) -> list[ServedModel]:
    """All models of the configuration, digested, checked and warm.

    Raises:
        RunnerError: one is not installed, damaged, no longer trusted, or computes wrong numbers.
    """
    models = []
    for entry in config.models:
        read, folder = store.startable(entry.release)
        check_architecture(folder / read.manifest.module, read.manifest.architecture)
        models.append(
            ServedModel.load(
                name=entry.name,
                version=entry.version,
                release=entry.release,
                manifest=read.manifest,
                folder=folder,
                contexts=config.contexts,
                threads=config.threads,
                limits=config.limits,
            )
        )
    return models


async def serve(
    config: ServiceConfig,
    models: list[ServedModel],
    listening: socket.socket,
    supervisor: socket.socket,
) -> None:
    """Serves until SIGTERM, or until the supervisor's end of its socket is closed."""
    loop = asyncio.get_running_loop()
    application = InferenceApplication(config, models)
    connections = Connections(application, config.limits)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    supervisor.setblocking(False)
    loop.add_reader(supervisor, _watch, supervisor, stop)
    server = await loop.create_server(
        lambda: Connection(connections),
        sock=listening,
        ssl=_tls(config),
        backlog=BACKLOG,
        ssl_handshake_timeout=config.limits.header_timeout_s if config.tls_key else None,
    )
    application.ready = True
    _tell(supervisor, "ready")
    beats = loop.create_task(_beat(application, supervisor))
    await stop.wait()
    application.ready = False
    # Only this process's copy is closed: whoever waits in the queue of the socket is answered by
    # the next worker.
    server.close()
    await connections.drain(config.limits.drain_timeout_s)
    beats.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await beats
    for model in models:
        await loop.run_in_executor(None, model.close)


async def _beat(application: InferenceApplication, supervisor: socket.socket) -> None:
    while True:
        now = time.monotonic()
        if not any(model.hung(now) for model in application.models):
            _tell(supervisor, "beat")
        await asyncio.sleep(BEAT_S)


def _watch(supervisor: socket.socket, stop: asyncio.Event) -> None:
    with contextlib.suppress(BlockingIOError):
        try:
            gone = not supervisor.recv(64)
        except ConnectionError:
            gone = True
        if gone:
            asyncio.get_running_loop().remove_reader(supervisor)
            stop.set()


def _tell(supervisor: socket.socket, line: str) -> None:
    with contextlib.suppress(OSError):
        supervisor.sendall(line.encode() + b"\n")


def _tls(config: ServiceConfig) -> ssl.SSLContext | None:
    if config.tls_certificate is None or config.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.tls_certificate, config.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise RunnerError(
            f"the TLS certificate or its key cannot be used: {error}",
            code=CONFIGURATION,
            cause="a file is missing, is not PEM, or the two do not belong together",
        ) from error
    return context


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
