"""`connect`: from what the user typed to a device that commands and files can be sent to."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import paramiko
from paramiko import SSHException

from edgectl.errors import ConfigurationError, ConnectionFailedError, DeviceError, EdgectlError
from edgectl.remote.authentication import authenticate
from edgectl.remote.base import PARTIAL_SUFFIX, CommandResult, Progress
from edgectl.remote.destination import parse_destination
from edgectl.remote.host_keys import HostKeyVerifier
from edgectl.remote.sftp import SftpSession, UnexplainedFailureError, open_sftp
from edgectl.remote.ssh_command import RemoteCommand
from edgectl.remote.ssh_config import HostSettings, host_settings
from edgectl.remote.ssh_options import SshOptions
from edgectl.remote.tcp import open_tcp
from edgectl.remote.transport import (
    ByteStream,
    Heartbeat,
    StrictTransport,
    is_worth_retrying,
    open_transport,
)

__all__ = ["SshDevice", "connect"]

_MAX_JUMPS = 8
_CLEANUP_S = 5.0


class SshDevice:
    """A machine reached over SSH (`edgectl.remote.Device`); made by `connect`.

    Commands may run side by side in several threads; files go one at a time.
    """

    def __init__(
        self,
        transports: Sequence[StrictTransport],
        label: str,
        options: SshOptions,
        *,
        keepalive_s: float,
    ):
        self._transports = tuple(transports)
        self._transport = self._transports[-1]
        self._label = label
        self._options = options
        self._emulated = options.emulated
        self._sftp: SftpSession | None = None
        self._heartbeat = Heartbeat(self._transport, options, keepalive_s)
        self._heartbeat.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def label(self) -> str:
        """``user@host:port`` as it was resolved."""
        return self._label

    @property
    def emulated(self) -> bool:
        """What `SshOptions.emulated` says, else whether the device has EDGECTL_EMULATED=1."""
        if self._emulated is None:
            answer = self.run(["printenv", "EDGECTL_EMULATED"], timeout_s=30.0)
            self._emulated = answer.stdout.strip() == b"1"
        return self._emulated

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_s: float = 60.0,
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> CommandResult:
        """See `Device.run`; ``on_stderr`` is called in the caller's own thread."""
        command = RemoteCommand(
            transport=self._transport,
            label=self._label,
            argv=tuple(argv),
            channel_timeout_s=self._options.channel_timeout_s,
        )
        try:
            return command.run(stdin, timeout_s, on_stderr)
        except ConnectionFailedError as error:
            raise self._explained(error) from error

    def put(
        self,
        source: Path | bytes,
        destination: str,
        *,
        mode: int = 0o644,
        offset: int = 0,
        progress: Progress | None = None,
        timeout_s: float = 600.0,
    ) -> int:
        """See `Device.put`. The file appears whole or not at all, by a rename.

        A broken connection leaves ``destination + ".part"``, from whose size (`partial_size`) a
        later call may go on; any other failure removes it.
        """
        try:
            return self._session().put(
                source, destination, mode=mode, offset=offset, progress=progress, stall_s=timeout_s
            )
        except ConnectionFailedError as error:
            self._drop_session()
            raise self._explained(error) from error
        except UnexplainedFailureError as error:
            self._drop_session()
            full = self._full_disk(destination)
            self._remove_partial(destination)
            raise (full or DeviceError(error.message)) from error
        except BaseException:
            self._drop_session()
            self._remove_partial(destination)
            raise

    def partial_size(self, destination: str) -> int:
        """Bytes that an interrupted `put` left behind, 0 if none."""
        partial = destination + PARTIAL_SUFFIX
        return self._session().size(partial, stall_s=self._options.channel_timeout_s) or 0

    def get(self, source: str, *, max_bytes: int = 1 << 30, timeout_s: float = 600.0) -> bytes:
        """See `Device.get`; a file that is larger than ``max_bytes`` is an error."""
        try:
            return self._session().get(source, max_bytes=max_bytes, stall_s=timeout_s)
        except ConnectionFailedError as error:
            self._drop_session()
            raise self._explained(error) from error
        except UnexplainedFailureError as error:
            self._drop_session()
            raise DeviceError(error.message) from error
        except BaseException:
            self._drop_session()
            raise

    def close(self) -> None:
        """Ends the connection, jump hosts last."""
        self._heartbeat.stop()
        self._drop_session()
        for transport in reversed(self._transports):
            transport.close()

    def _session(self) -> SftpSession:
        if self._sftp is None:
            self._sftp = open_sftp(self._transport, self._label, self._options.channel_timeout_s)
        return self._sftp

    def _drop_session(self) -> None:
        if self._sftp is not None:
            self._sftp.close()
            self._sftp = None

    def _remove_partial(self, destination: str) -> None:
        if self._transport.is_active():
            with suppress(EdgectlError):
                session = open_sftp(self._transport, self._label, _CLEANUP_S)
                session.remove(destination + PARTIAL_SUFFIX, stall_s=_CLEANUP_S)
                session.close()

    def _full_disk(self, destination: str) -> DeviceError | None:
        """What the file system says about a failure that SFTP has no word for."""
        folder = posixpath.dirname(destination) or "."
        for option, what in (("-Pk", "KiB"), ("-Pi", "inodes")):
            with suppress(EdgectlError, ValueError, IndexError):
                line = self.run(["df", option, folder], timeout_s=10.0).stdout.split(b"\n")[1]
                _, total, _, available = line.split()[:4]
                if int(available) < 64 and int(total) > 0:
                    return DeviceError(
                        f"the disk of {self._label} is full: {int(available)} {what} left at"
                        f" {folder}; the part that was sent has been removed",
                        next_step=f"free some space there: df -h {folder}",
                    )
        return None

    def _explained(self, error: ConnectionFailedError) -> ConnectionFailedError:
        if self._heartbeat.found_dead:
            error.cause = f"no sign of life for {self._options.dead_peer_s:g} s"
        return error


def connect(destination: str, *, options: SshOptions | None = None) -> SshDevice:
    """Connects and logs in to ``[user@]host[:port]`` or an alias of ``~/.ssh/config``.

    Raises:
        UsageError: the destination cannot be read.
        ConfigurationError: the ssh configuration cannot be honoured.
        ConnectionFailedError: not reachable, or no safe SSH server there.
        HostKeyError: a host key on the way is unknown, changed or revoked.
        AuthenticationError: nothing that was offered let us in.
    """
    options = options or SshOptions()
    typed = parse_destination(destination)
    options = replace(
        options,
        user=typed.user if typed.user is not None else options.user,
        port=typed.port if typed.port is not None else options.port,
    )
    settings = host_settings(typed.host, options)
    transports: list[StrictTransport] = []
    try:
        for hop in _jumps(settings, options):
            transports.append(_log_in(hop, transports[-1:], options))
        transports.append(_log_in(settings, transports[-1:], options))
    except BaseException:
        for transport in reversed(transports):
            transport.close()
        raise
    return SshDevice(transports, _label(settings), options, keepalive_s=settings.keepalive_s)


def _jumps(
    settings: HostSettings, options: SshOptions, seen: tuple[str, ...] = ()
) -> list[HostSettings]:
    """All hosts to pass through, in order; the first may itself need a jump."""
    if len(seen) > _MAX_JUMPS:
        raise ConfigurationError(
            f"ProxyJump leads through more than {_MAX_JUMPS} hosts: {' -> '.join(seen)}",
            cause="two hosts probably name each other",
        )
    hops: list[HostSettings] = []
    for position, text in enumerate(settings.proxy_jump):
        typed = parse_destination(text)
        hop = host_settings(typed.host, options, hop=True)
        hop = replace(
            hop,
            user=typed.user if typed.user is not None else hop.user,
            port=typed.port if typed.port is not None else hop.port,
        )
        if position == 0:
            hops += _jumps(hop, options, (*seen, settings.alias))
        hops.append(hop)
    return hops


def _label(settings: HostSettings) -> str:
    host = f"[{settings.hostname}]" if ":" in settings.hostname else settings.hostname
    return f"{settings.user}@{host}:{settings.port}"


def _log_in(
    settings: HostSettings, through: Sequence[StrictTransport], options: SshOptions
) -> StrictTransport:
    """One hop: bytes to the host, handshake, host key, login."""
    label = _label(settings)
    for attempt in range(max(1, options.connect_attempts)):
        stream = _stream(settings, through, options, label)
        verifier = HostKeyVerifier.of(settings, options)
        try:
            transport = open_transport(stream, label=label, verifier=verifier, options=options)
            break
        except ConnectionFailedError as error:
            stream.close()
            if not is_worth_retrying(error):
                raise
            if attempt + 1 >= options.connect_attempts:
                # As the public class, which is what scripts see in a JSON document.
                raise ConnectionFailedError(
                    error.message, cause=error.cause, next_step=error.next_step
                ) from error
    try:
        authenticate(transport, settings, options, label=label)
    except BaseException:
        transport.close()
        raise
    return transport


def _stream(
    settings: HostSettings,
    through: Sequence[StrictTransport],
    options: SshOptions,
    label: str,
) -> ByteStream:
    if not through:
        return open_tcp(
            settings.hostname,
            settings.port,
            timeout_s=settings.connect_timeout_s,
            dead_peer_s=options.dead_peer_s,
        )
    try:
        return through[0].open_channel(
            "direct-tcpip",
            (settings.hostname, settings.port),
            ("127.0.0.1", 0),
            timeout=settings.connect_timeout_s,
        )
    except paramiko.ChannelException as error:
        raise ConnectionFailedError(
            f"the jump host cannot reach {label}: {error.text}",
            cause="the address is wrong as seen from there, the device is off, or the jump host"
            " forbids forwarding (AllowTcpForwarding)",
        ) from error
    except (SSHException, OSError, EOFError) as error:
        raise ConnectionFailedError(
            f"no way to {label} through the jump host: {error}",
            cause="the jump host does not answer in time",
        ) from error
