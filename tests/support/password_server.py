"""An SSH server that takes passwords (OpenSSH would need a system account for that)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import paramiko


@dataclass(slots=True)
class PasswordServer:
    """``methods`` are what it offers; ``key`` is wanted first when it is set (two factors)."""

    port: int = 0
    password: str = "raspberry"
    methods: Sequence[str] = ("password",)
    key: paramiko.PKey | None = None
    host_key: paramiko.PKey = field(default_factory=lambda: paramiko.ECDSAKey.generate())
    attempts: list[str] = field(default_factory=list)

    @property
    def known_line(self) -> str:
        return f"[127.0.0.1]:{self.port} {self.host_key.get_name()} {self.host_key.get_base64()}\n"


class _Rules(paramiko.ServerInterface):
    def __init__(self, server: PasswordServer):
        self.server = server
        self.key_accepted = server.key is None

    def get_allowed_auths(self, username: str) -> str:
        return ",".join(self.server.methods if self.key_accepted else ["publickey"])

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.server.attempts.append("publickey")
        if self.server.key is not None and key.asbytes() == self.server.key.asbytes():
            self.key_accepted = True
            return paramiko.AUTH_PARTIALLY_SUCCESSFUL
        return paramiko.AUTH_FAILED

    def check_auth_password(self, username: str, password: str) -> int:
        self.server.attempts.append(f"password {password}")
        right = self.key_accepted and password == self.server.password
        return paramiko.AUTH_SUCCESSFUL if right else paramiko.AUTH_FAILED

    def check_auth_interactive(self, username: str, submethods: str) -> object:
        return paramiko.InteractiveQuery("", "", ("Password: ", False), ("Code: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        self.server.attempts.append(f"interactive {responses}")
        right = responses == [self.server.password, "123456"]
        return paramiko.AUTH_SUCCESSFUL if right else paramiko.AUTH_FAILED


@contextmanager
def running(server: PasswordServer) -> Iterator[PasswordServer]:
    listener = socket.create_server(("127.0.0.1", 0))
    server.port = listener.getsockname()[1]
    transports: list[paramiko.Transport] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(connection)
            transport.add_server_key(server.host_key)
            transport.start_server(event=threading.Event(), server=_Rules(server))
            transports.append(transport)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield server
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for transport in transports:
            transport.close()
