"""One command over an SSH channel: both streams drained, ended on the device when time is up.

sshd does not end a command whose channel is closed, so every command is started by a small shell
script that first tells its process id; a second channel then signals that process group.
"""

from __future__ import annotations

import queue
import secrets
import shlex
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import paramiko
from paramiko import SSHException

from edgectl.errors import ConnectionFailedError, DeviceError
from edgectl.remote.base import CommandResult, describe_command
from edgectl.remote.deadlines import Deadline, closed_after
from edgectl.remote.transport import close_channel, connection_ended, open_session

__all__ = ["RemoteCommand"]

_START = 'printf "%s %s\\n" "$1" "$$" >&2; shift; "$@"; status=$?; exit "$status"'
"""Tells the process id on standard error, then runs its arguments as they are."""

_END = """\
read -r line < "/proc/$1/stat" || exit 0
set -- ${line##*) }
[ "$3" -gt 1 ] || exit 0
kill -TERM "-$3"
tries=0
while [ "$tries" -lt 20 ] && kill -0 "-$3" 2>/dev/null; do sleep 0.1; tries=$((tries + 1)); done
kill -KILL "-$3" 2>/dev/null
exit 0
"""
"""Ends the process group of process $1: politely, and after two seconds for sure."""

_MAX_OUTPUT_BYTES = 256 << 20
_GRACE_S = 2.0
_END_S = 5.0
_SLICE_S = 0.25  # how often waiting looks whether the time is up


@dataclass(slots=True, kw_only=True)
class RemoteCommand:
    """A command to run once over ``transport``."""

    transport: paramiko.Transport
    label: str
    argv: tuple[str, ...]
    channel_timeout_s: float
    _token: str = field(default_factory=lambda: "edgectl-" + secrets.token_hex(8))
    _events: queue.SimpleQueue[tuple[str, bytes]] = field(default_factory=queue.SimpleQueue)
    _process_id: str | None = None

    def run(
        self, stdin: bytes, timeout_s: float, on_stderr: Callable[[bytes], None] | None
    ) -> CommandResult:
        """See `Device.run`."""
        deadline = Deadline(timeout_s)
        limit_s = min(self.channel_timeout_s, timeout_s)
        channel = self._open(limit_s)
        stop = threading.Event()
        try:
            self._thread(self._read, "stdout", channel.recv, stop)
            self._thread(self._read, "stderr", channel.recv_stderr, stop)
            self._start(channel, limit_s)
            self._thread(self._write, channel, stdin, stop)
            stdout, stderr = self._collect(deadline, on_stderr)
            exit_code = self._exit_code(channel, deadline)
        except BaseException:
            # Also Ctrl-C: nothing of ours may go on running on the device.
            self._end_on_device()
            raise
        finally:
            stop.set()
            close_channel(channel)
        return CommandResult(argv=self.argv, exit_code=exit_code, stdout=stdout, stderr=stderr)

    @staticmethod
    def _thread(target: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, daemon=True).start()

    def _open(self, limit_s: float) -> paramiko.Channel:
        try:
            channel = open_session(self.transport, self.label, limit_s)
        except (SSHException, OSError, EOFError) as error:
            raise self._broken(str(error)) from error
        channel.settimeout(_SLICE_S)
        return channel

    def _start(self, channel: paramiko.Channel, limit_s: float) -> None:
        command = shlex.join(["sh", "-c", _START, "edgectl", self._token, *self.argv])
        with closed_after(limit_s, self.transport.close) as expiry:
            try:
                channel.exec_command(command)
            except (SSHException, OSError, EOFError) as error:
                why = f"no answer within {limit_s:g} s" if expiry.expired else str(error)
                raise self._broken(why) from error

    def _read(self, name: str, receive: Callable[[int], bytes], stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                data = receive(1 << 16)
            except TimeoutError:
                continue
            except (OSError, EOFError, SSHException):
                data = b""
            self._events.put((name, data))
            if not data:
                return

    def _write(self, channel: paramiko.Channel, stdin: bytes, stop: threading.Event) -> None:
        rest = memoryview(stdin)
        with suppress(OSError, EOFError, SSHException):  # the command may end without reading
            while rest and not stop.is_set():
                try:
                    rest = rest[channel.send(bytes(rest[: 1 << 15])) :]
                except TimeoutError:
                    continue
            channel.shutdown_write()

    def _collect(
        self, deadline: Deadline, on_stderr: Callable[[bytes], None] | None
    ) -> tuple[bytes, bytes]:
        streams = {"stdout": bytearray(), "stderr": bytearray()}
        still_open = set(streams)
        while still_open:
            if deadline.expired:
                raise self._too_long(deadline.seconds)
            try:
                name, data = self._events.get(timeout=deadline.remaining_s(at_most=_SLICE_S))
            except queue.Empty:
                if not self.transport.is_active():
                    raise self._broken("the device does not answer any more") from None
                continue
            if not data:
                still_open.discard(name)
                continue
            streams[name] += data
            if name == "stderr":
                fresh = self._without_header(streams["stderr"], data)
                if fresh and on_stderr is not None:
                    on_stderr(fresh)
            if sum(map(len, streams.values())) > _MAX_OUTPUT_BYTES:
                raise DeviceError(
                    f"{describe_command(self.argv)} on {self.label} printed more than"
                    f" {_MAX_OUTPUT_BYTES >> 20} MiB and was ended"
                )
        return bytes(streams["stdout"]), bytes(streams["stderr"])

    def _without_header(self, stderr: bytearray, data: bytes) -> bytes:
        """Takes the line with the process id out of what has come; returns what is new."""
        if self._process_id is not None:
            return data
        start = stderr.find(self._token.encode("ascii"))
        end = stderr.find(b"\n", start)
        if start < 0 or end < 0:
            return b""
        self._process_id = stderr[start:end].decode("ascii", "replace").rpartition(" ")[2]
        del stderr[start : end + 1]
        return bytes(stderr)

    def _exit_code(self, channel: paramiko.Channel, deadline: Deadline) -> int:
        while not channel.status_event.wait(deadline.remaining_s(at_most=_SLICE_S)):
            if channel.closed or not self.transport.is_active():
                break
            if deadline.expired:
                raise self._too_long(deadline.seconds)
        code = channel.exit_status
        if code < 0 and not connection_ended(self.transport):
            raise DeviceError(
                f"{describe_command(self.argv)} on {self.label} was killed",
                cause="the device ran out of memory, or somebody ended it there",
                next_step="on the device: sudo dmesg | tail",
            )
        if code < 0:
            raise self._broken("the connection ended before the command did")
        return code

    def _too_long(self, seconds: float) -> DeviceError:
        return DeviceError(
            f"{describe_command(self.argv)} on {self.label} did not end within {seconds:g} s"
            " and was ended",
            cause="it hangs, or the device is slower than expected",
            next_step="try again with a longer timeout",
        )

    def _broken(self, why: str) -> ConnectionFailedError:
        return ConnectionFailedError(
            f"the connection to {self.label} broke during {describe_command(self.argv)}",
            cause=why or "the device hung up",
            next_step="check power and network of the device, then run the same command again",
        )

    def _end_on_device(self) -> None:
        if not self.transport.is_active():
            return
        process_id = self._await_process_id()
        if process_id is None or not process_id.isdigit():
            return
        with (
            suppress(SSHException, OSError, EOFError, DeviceError),
            closed_after(2 * _END_S, self.transport.close),
        ):
            channel = open_session(self.transport, self.label, _END_S)
            channel.exec_command(shlex.join(["sh", "-c", _END, "edgectl", process_id]))
            channel.status_event.wait(_END_S)
            channel.close()

    def _await_process_id(self) -> str | None:
        """The process id, also when the command is so young that it has not come yet."""
        deadline = Deadline(_GRACE_S)
        stderr = bytearray()
        while self._process_id is None and not deadline.expired:
            with suppress(queue.Empty):
                name, data = self._events.get(timeout=deadline.remaining_s(at_most=_SLICE_S))
                if name == "stderr":
                    if not data:
                        break
                    stderr += data
                    self._without_header(stderr, data)
        return self._process_id
