"""This computer in the role of a device: the same seam without a network."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from edgectl.errors import DeviceError
from edgectl.remote.base import PARTIAL_SUFFIX, CommandResult, Progress, describe_command
from edgectl.remote.deadlines import Deadline

__all__ = ["LocalDevice"]

_CHUNK_BYTES = 1 << 20
_GRACE_S = 2.0


class LocalDevice:
    """Runs commands here (`edgectl.remote.Device`).

    ``environment`` is added to this process's own; paths are as on this computer.
    """

    def __init__(self, *, environment: Mapping[str, str] | None = None, emulated: bool = False):
        self._environment = {**os.environ, **(environment or {})}
        self._emulated = emulated

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def label(self) -> str:
        """``this computer``."""
        return "this computer"

    @property
    def emulated(self) -> bool:
        """What the maker said."""
        return self._emulated

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float = 60.0,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> CommandResult:
        """See `Device.run`; a program that is not there ends with 127, as in a shell."""
        deadline = Deadline(timeout_s)
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            message = f"{argv[0]}: {error.strerror}\n".encode()
            code = 127 if isinstance(error, FileNotFoundError) else 126
            return CommandResult(argv=tuple(argv), exit_code=code, stdout=b"", stderr=message)
        try:
            stdout, stderr = _drain(process, stdin, deadline, argv, on_stderr)
            code = process.wait(deadline.remaining_s())
        except subprocess.TimeoutExpired:
            _end(process)
            raise _too_long(argv, timeout_s) from None
        except BaseException:
            _end(process)
            raise
        # Ended by signal N is -N here and 128+N in a shell, which is what devices say.
        code = 128 - code if code < 0 else code
        return CommandResult(argv=tuple(argv), exit_code=code, stdout=stdout, stderr=stderr)

    def put(
        self,
        source: Path | bytes,
        destination: str,
        *,
        mode: int = 0o644,
        offset: int = 0,
        progress: Progress | None = None,
        timeout_s: float = 600.0,  # noqa: ARG002 - a local disk does not stand still
    ) -> int:
        """See `Device.put`."""
        partial = Path(destination + PARTIAL_SUFFIX)
        try:
            data = source if isinstance(source, bytes) else source.read_bytes()
            if offset and self.partial_size(destination) < offset:
                raise DeviceError(f"{partial} has fewer than {offset} bytes to go on from")
            with partial.open("r+b" if offset else "wb") as file:
                file.truncate(offset)
                file.seek(offset)
                for position in range(offset, len(data), _CHUNK_BYTES):
                    file.write(data[position : position + _CHUNK_BYTES])
                    if progress is not None:
                        progress(min(position + _CHUNK_BYTES, len(data)), len(data))
            partial.chmod(mode)
            partial.replace(destination)
        except OSError as error:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise DeviceError(f"cannot write {destination}: {error.strerror}") from error
        return len(data) - offset

    def partial_size(self, destination: str) -> int:
        """See `Device.partial_size`."""
        try:
            return Path(destination + PARTIAL_SUFFIX).stat().st_size
        except OSError:
            return 0

    def get(self, source: str, *, max_bytes: int = 1 << 30, timeout_s: float = 600.0) -> bytes:  # noqa: ARG002
        """See `Device.get`."""
        try:
            with Path(source).open("rb") as file:
                content = file.read(max_bytes + 1)
        except OSError as error:
            raise DeviceError(f"cannot read {source}: {error.strerror}") from error
        if len(content) > max_bytes:
            raise DeviceError(f"{source} has more than {max_bytes} bytes; so many are not read")
        return content

    def close(self) -> None:
        """Nothing to end."""


def _drain(
    process: subprocess.Popen[bytes],
    stdin: bytes,
    deadline: Deadline,
    argv: Sequence[str],
    on_stderr: Callable[[bytes], None] | None,
) -> tuple[bytes, bytes]:
    events: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()

    def read(name: str, stream: IO[bytes]) -> None:
        with stream:
            while data := os.read(stream.fileno(), 1 << 16):
                events.put((name, data))
        events.put((name, b""))

    def write(stream: IO[bytes]) -> None:
        with suppress(OSError), stream:
            stream.write(stdin)

    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise DeviceError("the process was started without pipes")
    for target, arguments in (
        (read, ("stdout", process.stdout)),
        (read, ("stderr", process.stderr)),
        (write, (process.stdin,)),
    ):
        threading.Thread(target=target, args=arguments, daemon=True).start()
    streams = {"stdout": bytearray(), "stderr": bytearray()}
    still_open = set(streams)
    while still_open:
        if deadline.expired:
            raise subprocess.TimeoutExpired(list(argv), deadline.seconds)
        try:
            name, data = events.get(timeout=deadline.remaining_s())
        except queue.Empty:
            continue
        if not data:
            still_open.discard(name)
            continue
        streams[name] += data
        if name == "stderr" and on_stderr is not None:
            on_stderr(data)
    return bytes(streams["stdout"]), bytes(streams["stderr"])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the whole process group, politely first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            continue
        return


def _too_long(argv: Sequence[str], timeout_s: float) -> DeviceError:
    return DeviceError(
        f"{describe_command(argv)} on this computer did not end within {timeout_s:g} s"
        " and was ended",
        cause="it hangs, or is slower than expected",
        next_step="try again with a longer timeout",
    )
