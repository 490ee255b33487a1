"""An SFTP server that is not OpenSSH's: no posix-rename, and reads that return too little."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paramiko


class _Handle(paramiko.SFTPHandle):
    def read(self, offset: int, length: int) -> bytes | int:
        data = super().read(offset, length)
        return data[: max(1, length // 3)] if isinstance(data, bytes) else data

    def stat(self) -> object:
        return paramiko.SFTPAttributes.from_stat(os.fstat(self.readfile.fileno()))


class _Files(paramiko.SFTPServerInterface):
    def open(self, path: str, flags: int, attr: object) -> object:
        try:
            descriptor = os.open(path, flags, 0o644)
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno)
        mode = {os.O_RDONLY: "rb", os.O_WRONLY: "wb"}.get(flags & os.O_ACCMODE, "r+b")
        handle = _Handle(flags)
        handle.readfile = handle.writefile = os.fdopen(descriptor, mode)
        return handle

    def stat(self, path: str) -> object:
        try:
            return paramiko.SFTPAttributes.from_stat(Path(path).stat())
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno)

    lstat = stat

    def chattr(self, path: str, attr: object) -> int:
        paramiko.SFTPServer.set_file_attr(path, attr)
        return paramiko.SFTP_OK

    def remove(self, path: str) -> int:
        try:
            Path(path).unlink()
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno)
        return paramiko.SFTP_OK

    def rename(self, old: str, new: str) -> int:
        if Path(new).exists():
            return paramiko.SFTP_FAILURE
        Path(old).rename(new)
        return paramiko.SFTP_OK


class _Rules(paramiko.ServerInterface):
    def get_allowed_auths(self, username: str) -> str:
        return "none"

    def check_auth_none(self, username: str) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED


@contextmanager
def odd_sftp_server() -> Iterator[tuple[int, str]]:
    """Yields the port and the known_hosts line; anybody may log in."""
    key = paramiko.ECDSAKey.generate()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transports: list[paramiko.Transport] = []

        def serve() -> None:
            connection, _ = listener.accept()
            transport = paramiko.Transport(connection)
            transport.add_server_key(key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _Files)
            transport.start_server(event=threading.Event(), server=_Rules())
            transports.append(transport)

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        yield port, f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n"
        for transport in transports:
            transport.close()
