"""``[user@]host[:port]``, as people type it."""

from __future__ import annotations

from dataclasses import dataclass

from edgectl.errors import UsageError

__all__ = ["Destination", "parse_destination"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where to connect to; ``host`` may be an alias of ``~/.ssh/config``."""

    host: str
    user: str | None = None
    port: int | None = None


def parse_destination(text: str) -> Destination:
    """Reads ``host``, ``user@host``, ``host:22``, ``[fe80::1]:22``, ``fe80::1``, ``ssh://...``.

    Raises:
        UsageError: it is empty, holds spaces, starts with a dash, or the port is no port.
    """
    rest = text.removeprefix("ssh://").rstrip("/") if text.startswith("ssh://") else text
    user, separator, host = rest.rpartition("@")
    if separator and not user:
        raise _malformed(text, "the user name before '@' is empty")
    port_text: str | None = None
    if host.startswith("["):
        address, closed, tail = host[1:].partition("]")
        if not closed or (tail and not tail.startswith(":")):
            raise _malformed(text, "the brackets do not enclose an address")
        host = address
        port_text = tail[1:] if tail else None
    elif host.count(":") == 1:  # two or more colons without brackets are an IPv6 address
        host, _, port_text = host.partition(":")
    for part in (host, user):
        # A dash in front would read as an option wherever the name is handed on.
        if part.startswith("-") or any(c.isspace() or ord(c) < 32 or c == "\x7f" for c in part):
            raise _malformed(text, f"{part!r} is not a name")
    if not host:
        raise _malformed(text, "the host name is empty")
    return Destination(host=host, user=user or None, port=_port(text, port_text))


def _port(text: str, port_text: str | None) -> int | None:
    if port_text is None:
        return None
    if not port_text.isascii() or not port_text.isdigit() or not 0 < int(port_text) < 65536:
        raise _malformed(text, f"{port_text!r} is not a port (1 to 65535)")
    return int(port_text)


def _malformed(text: str, why: str) -> UsageError:
    return UsageError(
        f"cannot read the device address {text!r}: {why}",
        next_step="write it as user@host or user@host:port, for example pi@raspberrypi.local",
    )
