"""The encrypted transport: strong algorithms only, an end to every wait, and a pulse.

paramiko 5.1 still offers CBC and 3DES ciphers and MD5 and SHA-1 checksums; they are left out
here, so that a server which has nothing else is refused with its list named.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from typing import Any, Protocol

import paramiko
from paramiko import SSHException

from edgectl.errors import ConnectionFailedError, DeviceError
from edgectl.remote.deadlines import Deadline, closed_after
from edgectl.remote.host_keys import HostKeyVerifier
from edgectl.remote.ssh_options import SshOptions

__all__ = [
    "ByteStream",
    "Heartbeat",
    "StrictTransport",
    "WatchedStream",
    "close_channel",
    "connection_ended",
    "is_worth_retrying",
    "open_session",
    "open_transport",
]

# Without a handler, paramiko's tracebacks of expected failures would reach the user's terminal.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_CIPHERS = (
    "aes128-ctr",
    "aes192-ctr",
    "aes256-ctr",
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
)
_MACS = (
    "hmac-sha2-256",
    "hmac-sha2-512",
    "hmac-sha2-256-etm@openssh.com",
    "hmac-sha2-512-etm@openssh.com",
)

_GOODBYE_S = 3.0
_REFUSED_S = 1.0


class ByteStream(Protocol):
    """A connected socket, or a paramiko channel that leads through a jump host."""

    def send(self, data: bytes, /) -> int:
        """Sends some of the bytes and returns how many."""
        ...

    def recv(self, size: int, /) -> bytes:
        """Receives up to ``size`` bytes; none at the end."""
        ...

    def settimeout(self, timeout: float | None, /) -> None:
        """Limits both."""
        ...

    def close(self) -> None:
        """Ends the stream."""
        ...


class WatchedStream:
    """Passes bytes through and remembers when the last ones arrived."""

    def __init__(self, stream: ByteStream):
        self._stream = stream
        self._closed = False  # paramiko looks at it when it waits for its thread to end
        self.last_received = time.monotonic()

    def send(self, data: bytes) -> int:
        """Sends some of the bytes and returns how many."""
        return self._stream.send(data)

    def recv(self, size: int) -> bytes:
        """Receives up to ``size`` bytes; none at the end."""
        data = self._stream.recv(size)
        if data:
            self.last_received = time.monotonic()
        return data

    def settimeout(self, timeout: float | None) -> None:
        """Limits both."""
        self._stream.settimeout(timeout)

    def close(self) -> None:
        """Ends the stream."""
        self._closed = True
        self._stream.close()


class StrictTransport(paramiko.Transport):
    """paramiko's transport without weak algorithms; keeps what the peer offered."""

    def __init__(self, stream: WatchedStream, host_key_algorithms: tuple[str, ...]):
        super().__init__(stream)  # type: ignore[arg-type]  # socket-like is what it asks for
        self.stream = stream
        self.offered: dict[str, list[str]] = {}
        security = self.get_security_options()
        security.ciphers = _CIPHERS
        security.digests = _MACS
        security.key_types = host_key_algorithms

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        """Plain keys only: paramiko would offer certificates, which nothing here verifies."""
        return tuple(self.get_security_options().key_types)

    def _really_parse_kex_init(self, m: Any, ignore_first_byte: bool = False) -> dict[str, Any]:
        parsed: dict[str, Any] = super()._really_parse_kex_init(m, ignore_first_byte)  # type: ignore[misc]
        if not ignore_first_byte:
            self.offered = {name: list(v) for name, v in parsed.items() if isinstance(v, list)}
        return parsed


def open_transport(
    stream: ByteStream, *, label: str, verifier: HostKeyVerifier, options: SshOptions
) -> StrictTransport:
    """Shakes hands over ``stream`` and checks the host key; nobody is logged in yet.

    Raises:
        ConnectionFailedError: no SSH server answers in time, or only with weak algorithms.
        HostKeyError: the host key may not be trusted.
    """
    started = time.monotonic()
    transport = StrictTransport(WatchedStream(stream), verifier.algorithm_order())
    transport.banner_timeout = options.banner_timeout_s
    transport.handshake_timeout = options.banner_timeout_s
    transport.auth_timeout = options.auth_timeout_s
    transport.channel_timeout = options.channel_timeout_s
    done = threading.Event()
    try:
        transport.start_client(done)
        # The thread ends by itself at its own limits; this one is for lines that drip in.
        finished = done.wait(2 * options.banner_timeout_s + 1.0)
        if not finished or not transport.is_active():
            raise _handshake_error(transport, label, options, waited_s=time.monotonic() - started)
        key = transport.get_remote_server_key()
        verifier.verify(key.get_name(), key.asbytes())
    except BaseException:
        transport.close()
        raise
    return transport


def _handshake_error(
    transport: StrictTransport, label: str, options: SshOptions, *, waited_s: float
) -> ConnectionFailedError:
    error = transport.get_exception()
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        weak = _without_agreement(transport)
        return ConnectionFailedError(
            f"{label} offers only algorithms that are not safe: {weak or error}",
            cause="its SSH server is old, or configured for old clients",
            next_step="update the SSH server of the device, and remove Ciphers, MACs,"
            " KexAlgorithms and HostKeyAlgorithms from its sshd_config",
        )
    if not transport.remote_version:
        if waited_s >= 0.9 * options.banner_timeout_s:
            return ConnectionFailedError(
                f"{label} accepted the connection but said nothing for"
                f" {options.banner_timeout_s:g} s (no SSH banner)",
                cause="the device is overloaded or still booting, or no SSH server listens on"
                " that port",
                next_step="try again; if the device is slow, with --ssh-timeout 60",
            )
        if error is not None and str(error).startswith(("Indecipherable", "Invalid SSH banner")):
            return ConnectionFailedError(
                f"what listens at {label} does not speak SSH",
                next_step="check the port",
            )
        return _EndedEarlyError(
            f"{label} closed the connection before the SSH banner",
            cause="its SSH server is starting, has too many connections (MaxStartups), or the"
            " address is blocked there",
            next_step="try again in a moment; on the device: journalctl -u ssh",
        )
    return ConnectionFailedError(
        f"the SSH handshake with {label} failed: {error or 'no end in time'}",
        cause="the connection broke, or something on the way altered its bytes",
        next_step="try again; if it stays, compare with: ssh -v to the same address",
    )


class _EndedEarlyError(ConnectionFailedError):
    """The peer hung up before it said anything: worth one more try."""


def close_channel(channel: paramiko.Channel) -> None:
    """Closes a channel, or the whole connection when not even that gets through.

    paramiko writes to the socket without any limit, so on a connection that is stuck a polite
    goodbye would wait until the peer counts as dead.
    """
    with closed_after(_GOODBYE_S, channel.get_transport().close):
        channel.close()


def open_session(transport: paramiko.Transport, label: str, timeout_s: float) -> paramiko.Channel:
    """A new session channel.

    A session that has just ended may still count on the server, so a refusal is asked about
    again for a moment.

    Raises:
        DeviceError: the server allows no further session.
        SSHException, OSError, EOFError: the connection broke.
    """
    deadline = Deadline(_REFUSED_S)
    with closed_after(timeout_s + _REFUSED_S, transport.close):
        while True:
            try:
                return transport.open_session(timeout=timeout_s)
            except paramiko.ChannelException as error:
                if deadline.expired:
                    raise DeviceError(
                        f"{label} refuses to open another session: {error.text}",
                        cause="its SSH server allows only so many at once (MaxSessions)",
                        next_step="raise MaxSessions in the device's sshd_config (10 is usual)",
                    ) from error
                time.sleep(0.1)


def connection_ended(transport: paramiko.Transport) -> bool:
    """Whether the whole connection is gone, and not just the channel that failed.

    paramiko closes the channels of a broken connection before it says that it is broken.
    """
    if transport.is_active():
        transport.join(0.5)
    return not transport.is_active()


def is_worth_retrying(error: ConnectionFailedError) -> bool:
    """Whether the server hung up before its banner, as a starting sshd does."""
    return isinstance(error, _EndedEarlyError)


def _without_agreement(transport: StrictTransport) -> str:
    """Names the kinds of algorithm in which the server has nothing that we accept."""
    kinds = (
        ("key exchange", "kex_algo_list", transport.get_security_options().kex),
        ("host key", "server_key_algo_list", transport.get_security_options().key_types),
        ("cipher", "server_encrypt_algo_list", transport.get_security_options().ciphers),
        ("checksum (MAC)", "server_mac_algo_list", transport.get_security_options().digests),
    )
    return "; ".join(
        f"{kind} {', '.join(transport.offered[field])}"
        for kind, field, ours in kinds
        if field in transport.offered and not set(transport.offered[field]) & set(ours)
    )


class Heartbeat(threading.Thread):
    """Asks a silent peer for a sign of life and closes the connection when none comes.

    TCP alone notices a peer that vanished after a quarter of an hour, and a proxy that swallows
    bytes never.
    """

    def __init__(self, transport: StrictTransport, options: SshOptions, keepalive_s: float):
        super().__init__(name="edgectl-heartbeat", daemon=True)
        self._transport = transport
        self._keepalive_s = keepalive_s
        self._dead_peer_s = options.dead_peer_s
        self._stop = threading.Event()
        self._ping: threading.Thread | None = None
        self.found_dead = False

    def run(self) -> None:
        """Looks every few seconds until `stop`."""
        pause_s = min(self._keepalive_s, self._dead_peer_s / 4, 5.0)
        while not self._stop.wait(pause_s) and self._transport.is_active():
            silent_s = time.monotonic() - self._transport.stream.last_received
            if silent_s > self._dead_peer_s:
                self.found_dead = True
                self._transport.close()
                return
            if silent_s >= self._keepalive_s and (self._ping is None or not self._ping.is_alive()):
                self._ping = threading.Thread(target=self._ask, daemon=True)
                self._ping.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()

    def _ask(self) -> None:
        # Servers refuse the unknown request; the refusal is the sign of life.
        with suppress(SSHException, OSError, EOFError):
            self._transport.global_request("keepalive@openssh.com", wait=True)
