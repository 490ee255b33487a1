"""Files over SFTP: many requests under way at once, every answer looked at.

paramiko's own pipelined write drops the answers to the last hundred requests, so a disk that
fills up near the end of a file goes unnoticed; this writer settles each one.
"""

from __future__ import annotations

import errno
import io
import posixpath
import stat
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import paramiko
from paramiko import SSHException
from paramiko.sftp import CMD_DATA, CMD_READ, CMD_WRITE, int64

from edgectl.errors import ConnectionFailedError, DeviceError, UsageError
from edgectl.remote.base import PARTIAL_SUFFIX, Progress
from edgectl.remote.deadlines import Deadline, closed_after, closed_when_over
from edgectl.remote.transport import close_channel, connection_ended, open_session

__all__ = ["SftpSession", "UnexplainedFailureError", "open_sftp"]

_MARGIN_S = 1.0
_CHUNK_BYTES = 32 * 1024  # the largest request that every server takes
_REQUESTS_UNDER_WAY = 32  # 1 MiB: as much as a break of the connection can cost


def open_sftp(transport: paramiko.Transport, label: str, timeout_s: float) -> SftpSession:
    """Starts the SFTP subsystem on a new channel.

    Raises:
        DeviceError: the device has none, or refuses another session.
        ConnectionFailedError: no answer within ``timeout_s``.
    """
    try:
        with closed_after(timeout_s, transport.close) as expiry:
            channel = open_session(transport, label, timeout_s)
            channel.settimeout(timeout_s)
            try:
                channel.invoke_subsystem("sftp")
                client = paramiko.SFTPClient(channel)
            except (SSHException, OSError, EOFError) as error:
                channel.close()
                if expiry.expired or connection_ended(transport):
                    raise
                raise DeviceError(
                    f"{label} has no SFTP server",
                    cause="its SSH server is minimal, or sshd_config lacks 'Subsystem sftp'",
                    next_step="on the device: sudo apt install openssh-sftp-server",
                ) from error
    except (SSHException, OSError, EOFError) as error:
        raise _broken(label, "starting a transfer", str(error)) from error
    return SftpSession(client, channel, label)


@dataclass(slots=True)
class SftpSession:
    """One SFTP channel. After an error it is of no use any more and must be closed."""

    client: paramiko.SFTPClient
    channel: paramiko.Channel
    label: str

    def close(self) -> None:
        """Ends the channel, and with it the files that are open on the device."""
        with suppress(SSHException, OSError, EOFError):
            close_channel(self.channel)

    def put(
        self,
        source: Path | bytes,
        destination: str,
        *,
        mode: int,
        offset: int,
        progress: Progress | None,
        stall_s: float,
    ) -> int:
        """Writes ``destination + ".part"``, then renames it; returns the bytes sent."""
        partial = destination + PARTIAL_SUFFIX
        with _opened(source) as (stream, total), self._errors(destination, stall_s) as moving:
            if offset > total:
                raise UsageError(f"cannot go on at byte {offset} of a file of {total} bytes")
            stream.seek(offset)
            file = self._open_partial(partial, offset)

            def settled(done: int) -> None:
                moving.extend()
                if progress is not None:
                    progress(done, total)

            sent = self._write_all(file, stream, offset, total, settled)
            # Only when all went well: after an error or Ctrl-C nobody may be there to answer.
            file.close()
            if isinstance(source, Path) and sent != total - offset:
                raise UsageError(
                    f"{source} changed while it was being sent: {total} bytes before,"
                    f" {offset + sent} now",
                    next_step="run the command again when nothing writes to the file",
                )
            self.client.chmod(partial, mode)
            self._rename(partial, destination)
        return sent

    def get(self, source: str, *, max_bytes: int, stall_s: float) -> bytes:
        """The whole file, or an error; never a part of it."""
        with self._errors(source, stall_s) as moving:
            file = self.client.open(source, "rb")
            attributes = file.stat()
            if attributes.st_mode is not None and not stat.S_ISREG(attributes.st_mode):
                raise DeviceError(f"{source} on {self.label} is not a file")
            size = attributes.st_size or 0
            if size > max_bytes:
                raise _too_large(source, self.label, size, max_bytes)
            if size == 0:  # also files of /proc and /sys, which have no size
                content = file.read(max_bytes + 1)
                if len(content) > max_bytes:
                    raise _too_large(source, self.label, len(content), max_bytes)
                size = len(content)
            else:
                content = self._read_all(file, size, moving)
            file.close()
        if len(content) != size:
            raise DeviceError(
                f"{source} on {self.label} changed while it was read: {len(content)} of {size}"
                " bytes came"
            )
        return content

    def size(self, path: str, *, stall_s: float) -> int | None:
        """Bytes of a regular file, ``None`` when there is none."""
        with self._errors(path, stall_s):
            try:
                attributes = self.client.lstat(path)
            except FileNotFoundError:
                return None
        regular = attributes.st_mode is not None and stat.S_ISREG(attributes.st_mode)
        return attributes.st_size if regular else None

    def remove(self, path: str, *, stall_s: float) -> None:
        """Deletes a file if it is there."""
        with self._errors(path, stall_s), suppress(FileNotFoundError):
            self.client.remove(path)

    def _open_partial(self, partial: str, offset: int) -> paramiko.SFTPFile:
        if offset == 0:
            return self.client.open(partial, "wb")
        size = self.client.stat(partial).st_size or 0
        if size < offset:
            raise DeviceError(
                f"{partial} on {self.label} has {size} bytes, too few to go on at {offset}",
                next_step="send the file from its beginning",
            )
        self.client.truncate(partial, offset)
        return self.client.open(partial, "r+b")

    def _write_all(
        self,
        file: paramiko.SFTPFile,
        stream: BinaryIO,
        offset: int,
        total: int,
        settled: Callable[[int], None],
    ) -> int:
        # ``_async_request`` and ``_read_response`` are what `SFTPFile.write` itself is made of;
        # pyproject.toml pins the major version of paramiko that has them.
        client: Any = self.client
        under_way: deque[tuple[int, int]] = deque()
        position = offset

        def settle() -> None:
            request, end = under_way.popleft()
            client._read_response(request)  # noqa: SLF001 - raises what the server answered
            settled(end)

        settled(offset)
        # One byte more than promised is asked for, to notice a file that grows.
        while position <= total and (data := stream.read(min(_CHUNK_BYTES, total + 1 - position))):
            if position + len(data) > total:
                return position + len(data) - offset
            request = client._async_request(  # noqa: SLF001
                type(None), CMD_WRITE, file.handle, int64(position), data
            )
            position += len(data)
            under_way.append((request, position))
            if len(under_way) >= _REQUESTS_UNDER_WAY:
                settle()
        while under_way:
            settle()
        return position - offset

    def _read_all(self, file: paramiko.SFTPFile, size: int, moving: Deadline) -> bytes:
        # paramiko's prefetch joins the pieces by copying all that came before, once a piece.
        client: Any = self.client
        content = bytearray(size)
        under_way: deque[tuple[int, int, int]] = deque()

        def ask(position: int, length: int) -> None:
            request = client._async_request(  # noqa: SLF001 - see _write_all
                type(None), CMD_READ, file.handle, int64(position), length
            )
            under_way.append((request, position, length))

        asked = 0
        while asked < size or under_way:
            while asked < size and len(under_way) < _REQUESTS_UNDER_WAY:
                ask(asked, min(_CHUNK_BYTES, size - asked))
                asked += min(_CHUNK_BYTES, size - asked)
            request, position, length = under_way.popleft()
            try:
                kind, message = client._read_response(request)  # noqa: SLF001
            except EOFError:
                return bytes(content[:position])
            moving.extend()
            data: bytes = message.get_string() if kind == CMD_DATA else b""
            if not data:
                return bytes(content[:position])
            content[position : position + len(data)] = data
            if len(data) < length:  # a server may answer with less than was asked for
                ask(position + len(data), length - len(data))
        return bytes(content)

    def _rename(self, partial: str, destination: str) -> None:
        try:
            self.client.posix_rename(partial, destination)
        except FileNotFoundError:
            raise
        except OSError as error:
            if "unsupported" not in str(error).lower():
                raise
            # Servers other than OpenSSH rename only to names that are free.
            with suppress(FileNotFoundError):
                self.client.remove(destination)
            self.client.rename(partial, destination)

    @contextmanager
    def _errors(self, path: str, stall_s: float) -> Iterator[Deadline]:
        """Names the path in whatever goes wrong with it; yields what progress extends."""
        self.channel.settimeout(stall_s)
        transport = self.channel.get_transport()
        # The channel's own limit comes first and keeps the connection; a socket that takes no
        # more bytes has none, and is closed a moment later.
        moving = Deadline(stall_s + _MARGIN_S)
        with closed_when_over(moving, transport.close) as stuck:
            try:
                yield moving
            except (SSHException, EOFError, OSError) as error:
                if stuck.expired or isinstance(error, TimeoutError):
                    raise ConnectionFailedError(
                        f"the transfer of {path} to or from {self.label} stood still for"
                        f" {stall_s:g} s",
                        cause="the network went away, or the device hangs",
                        next_step="run the same command again; it goes on where it stopped",
                    ) from error
                connected = transport.is_active() and not self.channel.closed
                if isinstance(error, OSError) and connected:
                    raise _device_error(self.label, path, error) from error
                raise _broken(self.label, f"the transfer of {path}", str(error)) from error


class UnexplainedFailureError(DeviceError):
    """SFTP's "Failure": it has no code for a full disk, nor for much else."""


@contextmanager
def _opened(source: Path | bytes) -> Iterator[tuple[BinaryIO, int]]:
    if isinstance(source, bytes):
        yield io.BytesIO(source), len(source)
        return
    try:
        file = source.open("rb")
    except OSError as error:
        raise UsageError(f"cannot read {source}: {error.strerror}") from error
    with file:
        yield file, source.stat().st_size


def _device_error(label: str, path: str, error: OSError) -> DeviceError:
    folder = posixpath.dirname(path) or "."
    if error.errno == errno.ENOENT:
        return DeviceError(f"{path} on {label} does not exist", cause=f"or {folder} does not")
    if error.errno == errno.EACCES:
        return DeviceError(
            f"no permission for {path} on {label}",
            next_step=f"on the device: ls -ld {folder}",
        )
    return UnexplainedFailureError(f"{path} on {label}: {error.strerror or error}")


def _too_large(source: str, label: str, size: int, max_bytes: int) -> DeviceError:
    return DeviceError(f"{source} on {label} has {size} bytes; no more than {max_bytes} are read")


def _broken(label: str, during: str, why: str) -> ConnectionFailedError:
    return ConnectionFailedError(
        f"the connection to {label} broke during {during}",
        cause=why or "the device hung up",
        next_step="check power and network of the device, then run the same command again",
    )
