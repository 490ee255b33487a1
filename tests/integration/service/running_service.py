"""A service that runs, and the ways in which tests talk to it."""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tiny_bundles import LoopbackDevice, ready_handle

from edgectl.remote.agent_calls import RunnerHandle
from edgectl.remote.push import push_bundle
from edgectl.serving import (
    ModelToServe,
    ServiceOptions,
    ServiceStatus,
    service_status,
    start_service,
    stop_service,
)

X = [float(n) for n in range(32)]
Y = [2.0 * n + 1.0 for n in X]
AFFINE_REQUEST = {"inputs": [{"name": "x", "shape": [4, 8], "datatype": "FP32", "data": X}]}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class RunningService:
    device: LoopbackDevice
    handle: RunnerHandle
    models: tuple[ModelToServe, ...] = ()
    status: ServiceStatus | None = field(default=None)

    def install(self, bundles: dict[str, Path]) -> None:
        """Pushes bundles (name -> file), to be served by the next `start`."""
        self.models = tuple(
            ModelToServe(name=name, release=push_bundle(self.device, self.handle, path).release)
            for name, path in bundles.items()
        )

    def start(self, **options: Any) -> ServiceStatus:
        # Port 0 the first time, and the port that was found from then on.
        options.setdefault("port", 0 if self.status is None else self.port)
        options.setdefault("models", self.models)
        self.status = start_service(self.device, self.handle, ServiceOptions(**options))
        return self.status

    def stop(self) -> None:
        stop_service(self.device, self.handle)

    def now(self) -> ServiceStatus:
        return service_status(self.device, self.handle)

    @property
    def address(self) -> str:
        assert self.status is not None
        assert self.status.address is not None
        return self.status.address

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port is not None
        return port

    def ask(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        body: bytes | None = None,
        **headers: str,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            data = json.dumps(document).encode() if document is not None else body
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body=data, headers=names)
            response = connection.getresponse()
            return Answer(
                status=response.status,
                headers={k.lower(): v for k, v in response.getheaders()},
                body=response.read(),
            )
        finally:
            connection.close()

    def raw(self, timeout_s: float = 30.0) -> socket.socket:
        """A bare connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s)


def new_service(folder: Path) -> RunningService:
    """A device of its own in that folder, ready for a service."""
    device = LoopbackDevice(folder / "home" / "edgectl")
    return RunningService(device=device, handle=ready_handle(device))
