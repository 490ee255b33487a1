"""Opens TCP connections, with one deadline for name lookup and all addresses together."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from typing import Any

from edgectl.errors import ConnectionFailedError
from edgectl.remote.deadlines import Deadline

__all__ = ["open_tcp"]


def open_tcp(host: str, port: int, *, timeout_s: float, dead_peer_s: float) -> socket.socket:
    """Connects to the first address of ``host`` that answers.

    Raises:
        ConnectionFailedError: the name is unknown, or no address answers; says which.
    """
    deadline = Deadline(timeout_s)
    label = f"{host}:{port}"
    failure: OSError | None = None
    for family, kind, protocol, _, address in _addresses(host, port, deadline):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(max(0.05, deadline.remaining_s()))
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
            if deadline.expired:
                break
            continue
        _tune(connection, dead_peer_s)
        return connection
    raise _connect_error(label, failure, timeout_s)


def _addresses(host: str, port: int, deadline: Deadline) -> list[Any]:
    """Looks the name up in a thread: getaddrinfo knows no timeout."""
    found: list[Any] = []
    failure: list[OSError | UnicodeError] = []

    def look_up() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            failure.append(error)

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(deadline.seconds)
    if failure or not found:
        reason = (
            getattr(failure[0], "strerror", None) or str(failure[0])
            if failure
            else f"no answer from the name server within {deadline.seconds:g} s"
        )
        raise ConnectionFailedError(
            f"cannot find the host {host!r}: {reason}",
            cause="the name is misspelled, the device is off, or this network does not resolve it"
            + (" (.local names need mDNS)" if host.endswith(".local") else ""),
            next_step="use the device's IP address instead of its name",
        )
    return found


def _tune(connection: socket.socket, dead_peer_s: float) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    with contextlib.suppress(OSError, AttributeError):  # Linux only
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(dead_peer_s * 1000))


def _connect_error(label: str, failure: OSError | None, timeout_s: float) -> ConnectionFailedError:
    if failure is not None and failure.errno == errno.ECONNREFUSED:
        return ConnectionFailedError(
            f"{label} refused the connection",
            cause="the device is up, but no SSH server listens on that port",
            next_step="on the device: sudo systemctl enable --now ssh; or check the port",
        )
    if failure is None or isinstance(failure, TimeoutError):
        return ConnectionFailedError(
            f"no answer from {label} within {timeout_s:g} s",
            cause="the device is off, in another network, or behind a firewall",
            next_step="check its power and network, then: ping " + label.rpartition(":")[0],
        )
    return ConnectionFailedError(
        f"cannot reach {label}: {failure.strerror or failure}",
        cause="this computer has no route to that address",
        next_step="check the network of this computer and of the device",
    )
