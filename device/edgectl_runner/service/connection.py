"""One HTTP/1.1 connection: h11 reads and writes the protocol, this bounds what a client may do.

Deadlines run on the event loop's monotonic clock, so a wrong wall clock changes nothing. Each
bounds a whole, never the time since the last byte, which a slow client could renew for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Awaitable
from typing import Any, Protocol, cast

import h11

from edgectl_runner.service.messages import HttpError, Request, Response
from edgectl_runner.service.settings import Limits

__all__ = ["Application", "Connection", "Connections"]

LINGER_S = 1.0
LINGER_BYTES = 1 << 20
SMALL_BODY_BYTES = 65536
SCRATCH_BYTES = 16384
# A body in many tiny chunks costs far more to take apart than its bytes are worth.
FREE_CHUNKS = 256
MIN_CHUNK_BYTES = 256


class Application(Protocol):
    """What answers requests."""

    def admit(self, request: Request) -> int:
        """The most body bytes that this request may have, before any of them is read.

        Raises:
            HttpError: it is refused whatever its body is.
        """
        ...

    def handle(self, request: Request, body: memoryview) -> Awaitable[Response]:
        """Answers.

        Raises:
            HttpError: refused.
        """
        ...

    def failed(self, error: BaseException) -> None:
        """Told about an error that is ours."""
        ...


class _State(enum.Enum):
    IDLE = enum.auto()
    HEADERS = enum.auto()
    BODY = enum.auto()
    ANSWERING = enum.auto()
    SENDING = enum.auto()
    CLOSING = enum.auto()


_READING = (_State.IDLE, _State.HEADERS, _State.BODY)


class Connections:
    """All open connections of one worker, oldest first."""

    def __init__(self, application: Application, limits: Limits):
        self.application = application
        self.limits = limits
        self.draining = False
        self.opened = 0
        self.evicted = 0
        self.unread = 0
        self._open: dict[Connection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> None:
        """Notes a connection; over the limit, one that does nothing gives way to it."""
        self.opened += 1
        self._open[connection] = None
        if len(self._open) > self.limits.max_connections:
            self.evicted += 1
            idle = next((c for c in self._open if c.idle), connection)
            idle.refuse_or_close()

    def remove(self, connection: Connection) -> None:
        """Forgets a closed connection."""
        self._open.pop(connection, None)

    async def drain(self, timeout_s: float) -> None:
        """Waits until the clients are done; each is told to close with its next answer.

        A client that sits on an idle connection has that long before it is closed.
        """
        self.draining = True
        end = asyncio.get_running_loop().time() + timeout_s
        idle_end = min(end, asyncio.get_running_loop().time() + min(2.0, timeout_s))
        while self._open and asyncio.get_running_loop().time() < end:
            if asyncio.get_running_loop().time() >= idle_end:
                for connection in [c for c in self._open if c.idle]:
                    connection.refuse_or_close()
            await asyncio.sleep(0.02)
        for connection in list(self._open):
            connection.abort()


class Connection(asyncio.BufferedProtocol):
    """The server's side of one connection.

    A client that closes its half counts as gone: nobody who waits for an inference does that, and
    a client that went away looks the same.

    A body whose length is known is received into its own place in memory at once, past h11, and the
    tensors of the request are views into it: the bytes of an input are copied by the kernel and by
    the runtime, and nowhere between.
    """

    def __init__(self, connections: Connections):
        self._connections = connections
        self._limits = connections.limits
        self._application = connections.application
        self._http = self._new_http()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._state = _State.IDLE
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._request: Request | None = None
        self._request_started = 0.0
        self._body = bytearray()
        self._lacking = 0
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._max_body = 0
        self._chunks = 0
        self._lingered = 0
        self._unsent = False
        self._pipelined: bytes | None = None

    def _new_http(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.max_header_bytes)

    # --- called by the event loop ------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self._transport = cast("asyncio.Transport", transport)
        # Told about every unsent byte: no next request is read before the answer is gone, so what
        # a slow reader can make us keep is one answer.
        self._transport.set_write_buffer_limits(high=0)
        self._connections.add(self)
        if self._state is _State.IDLE:
            # A new connection has the time of a request's headers, not that of an idle one.
            self._arm(self._limits.header_timeout_s, self._too_slow)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: what lacks of a body, else a place to read headers from."""
        del sizehint
        if self._lacking:
            return memoryview(self._body)[-self._lacking :]
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have come."""
        if not self._lacking:
            self._received(bytes(self._scratch[:nbytes]))
            return
        self._lacking -= nbytes
        if not self._lacking:
            self._answer()

    def _received(self, data: bytes) -> None:
        if self._state is _State.CLOSING:
            self._lingered += len(data)
            if self._lingered > LINGER_BYTES:
                self.abort()
            return
        if self._state in (_State.ANSWERING, _State.SENDING):
            # A pipelined request: it waits, and the client is read no further.
            if self._pipelined is not None:
                self._pipelined += data
            else:
                self._http.receive_data(data)
            self._pause()
            return
        if self._state is _State.IDLE:
            self._begin()
        self._http.receive_data(data)
        self._advance()

    def pause_writing(self) -> None:
        """Some of the answer is not gone yet."""
        self._unsent = True

    def resume_writing(self) -> None:
        """All of it is."""
        self._unsent = False
        if self._state is _State.SENDING:
            self._next_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone; what it waited for is not computed any more."""
        del exc
        self._disarm()
        self._connections.remove(self)
        if self._task is not None:
            self._task.cancel()
        self._body = bytearray()

    # --- for `Connections` -------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no request is under way; one whose headers only trickle in counts as none."""
        return self._state in (_State.IDLE, _State.HEADERS)

    def refuse_or_close(self) -> None:
        """Makes room: 503 if a request has begun, else just closed."""
        if self._state is _State.HEADERS:
            self._refuse(HttpError(503, "too many connections", headers={"retry-after": "1"}))
        else:
            self._state = _State.CLOSING
            if self._transport is not None:
                self._transport.close()

    def abort(self) -> None:
        """Ends the connection at once."""
        self._disarm()
        if self._transport is not None:
            self._transport.abort()

    # --- reading -----------------------------------------------------------------------------

    def _begin(self) -> None:
        self._state = _State.HEADERS
        self._request_started = self._loop.time()
        self._arm(self._limits.header_timeout_s, self._too_slow)

    def _advance(self) -> None:
        try:
            while not self._lacking and self._state in _READING:
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                if self._state is _State.IDLE:
                    self._begin()
                self._on_event(event)
        except h11.RemoteProtocolError as error:
            # h11 says 431 for too long headers, 501 for an unknown transfer encoding, else 400.
            self._refuse(HttpError(error.error_status_hint, _reason(error)))
        except HttpError as error:
            self._refuse(error)

    def _on_event(self, event: Any) -> None:
        if isinstance(event, h11.Request):
            self._on_request(event)
        elif isinstance(event, h11.Data):
            self._on_data(event)
        elif isinstance(event, h11.EndOfMessage):
            self._answer()
        elif isinstance(event, h11.ConnectionClosed):
            self._state = _State.CLOSING
            if self._transport is not None:
                self._transport.close()

    def _on_request(self, event: h11.Request) -> None:
        headers: dict[str, str] = {}
        for raw_name, raw_value in event.headers:
            name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        # h11 bounds only headers that are not complete yet.
        size = len(event.target) + sum(len(n) + len(v) + 4 for n, v in event.headers)
        if size > self._limits.max_header_bytes:
            raise HttpError(431, "the headers are too long")
        if "content-length" in headers and "transfer-encoding" in headers:
            # Two lengths are how requests are smuggled past a proxy that believes the other one.
            raise HttpError(400, "both Content-Length and Transfer-Encoding")
        path = event.target.decode("latin-1").partition("?")[0]
        self._request = Request(method=event.method.decode("latin-1"), path=path, headers=headers)
        self._state = _State.BODY
        remaining = self._limits.receive_timeout_s - (self._loop.time() - self._request_started)
        self._arm(max(0.0, remaining), self._too_slow)
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise HttpError(415, "compressed bodies are not accepted")
        self._max_body = self._application.admit(self._request)
        length = headers.get("content-length")
        if length is not None and int(length) > self._max_body:
            raise self._too_large()
        self._body = bytearray()
        self._chunks = 0
        if length is not None and int(length) > 0:
            self._receive_directly(int(length))
        if self._http.they_are_waiting_for_100_continue and self._state is _State.BODY:
            answer = h11.InformationalResponse(status_code=100, headers=[])
            self._write(self._http.send(answer) or b"")

    def _receive_directly(self, length: int) -> None:
        """Takes over from h11, which has no way to be told of a body that went past it.

        What h11 holds already is the body's beginning, and perhaps a pipelined request.
        """
        held, _ = self._http.trailing_data
        self._body = bytearray(length)
        self._body[: min(length, len(held))] = held[:length]
        self._lacking = max(0, length - len(held))
        self._pipelined = bytes(held[length:])
        if not self._lacking:
            self._answer()

    def _on_data(self, event: h11.Data) -> None:
        self._body += event.data
        self._chunks += 1
        if len(self._body) > self._max_body:
            raise self._too_large()
        if self._chunks > FREE_CHUNKS + len(self._body) // MIN_CHUNK_BYTES:
            raise HttpError(400, "the body comes in too small chunks")

    def _too_large(self) -> HttpError:
        return HttpError(413, f"the body is larger than {self._max_body} bytes")

    def _too_slow(self) -> None:
        if self._state is _State.IDLE:
            self._state = _State.CLOSING
            self.abort()
            return
        self._refuse(HttpError(408, "the request took too long to arrive"))

    # --- answering ---------------------------------------------------------------------------

    def _answer(self) -> None:
        self._disarm()
        self._state = _State.ANSWERING
        self._task = self._loop.create_task(self._respond())

    async def _respond(self) -> None:
        request, body = self._request, self._body
        self._body = bytearray()
        if request is None:
            raise RuntimeError("an answer without a request")
        try:
            response = await self._application.handle(request, memoryview(body))
        except HttpError as error:
            response = error.response()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the client gets an answer whatever failed
            self._application.failed(error)
            response = HttpError(500, "internal error").response()
        self._task = None
        if self._transport is None or self._transport.is_closing():
            return
        self._send(response, close=self._connections.draining)
        self._finish()

    def _refuse(self, error: HttpError) -> None:
        """Answers before the request is complete, and closes: what follows cannot be told apart."""
        self._disarm()
        self._state = _State.CLOSING
        self._lacking = 0
        self._body = bytearray()
        if self._transport is None:
            return
        # h11 sends an answer only to a request that it could read.
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            with contextlib.suppress(h11.LocalProtocolError):
                self._send(error.response(), close=True)
        self._linger()

    def _send(self, response: Response, *, close: bool) -> None:
        headers = [*response.headers.items(), ("content-length", str(response.size_bytes))]
        headers += [("x-content-type-options", "nosniff")]
        if close:
            headers.append(("connection", "close"))
        head = self._http.send(
            h11.Response(status_code=response.status, headers=headers, reason=b"")
        )
        without_body = self._request is not None and self._request.method == "HEAD"
        parts = () if without_body else response.parts
        # The body goes past h11, which would join and copy it; it is told only how much went.
        data = [
            self._http.send_with_data_passthrough(h11.Data(data=cast("bytes", part)))
            for part in parts
        ]
        end = self._http.send(h11.EndOfMessage())
        chunks = [head or b"", *(chunk for part in data for chunk in part or ()), end or b""]
        if sum(map(len, chunks)) <= SMALL_BODY_BYTES:
            self._write(b"".join(chunks))
        else:
            for chunk in chunks:
                self._write(chunk)

    def _finish(self) -> None:
        """After an answer: the next request, or the end."""
        transport = self._transport
        if transport is None:
            return
        if self._unsent:
            # A client that does not read is given up in the end.
            self._state = _State.SENDING
            self._arm(self._limits.send_timeout_s, self._unread)
            return
        self._next_request()

    def _unread(self) -> None:
        self._connections.unread += 1
        self.abort()

    def _next_request(self) -> None:
        self._disarm()
        self._request = None
        if self._http.our_state is h11.MUST_CLOSE or self._http.their_state is h11.MUST_CLOSE:
            self._state = _State.CLOSING
            self._linger()
            return
        if self._pipelined is not None:
            # h11 still waits for the body that it never saw: a new one takes up from here.
            rest, self._pipelined = self._pipelined, None
            self._http = self._new_http()
            if rest:
                self._http.receive_data(rest)
        else:
            try:
                self._http.start_next_cycle()
            except h11.LocalProtocolError:
                self._state = _State.CLOSING
                self._linger()
                return
        self._state = _State.IDLE
        self._arm(self._limits.idle_timeout_s, self._too_slow)
        self._resume()
        self._advance()

    def _linger(self) -> None:
        """Closes without a reset, which could overtake the answer while the client still sends."""
        transport = self._transport
        if transport is None:
            return
        if not transport.can_write_eof():
            transport.close()
            return
        with contextlib.suppress(OSError):
            transport.write_eof()
        self._resume()
        self._arm(LINGER_S, self.abort)

    # --- small things ------------------------------------------------------------------------

    def _write(self, data: Any) -> None:
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _pause(self) -> None:
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def _resume(self) -> None:
        if (
            self._transport is not None
            and not self._transport.is_closing()
            and not self._transport.is_reading()
        ):
            self._transport.resume_reading()

    def _arm(self, seconds: float, action: Any) -> None:
        self._disarm()
        self._timer = self._loop.call_later(seconds, action)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _reason(error: h11.RemoteProtocolError) -> str:
    return {431: "the headers are too long", 501: "this transfer encoding is not known"}.get(
        error.error_status_hint, "the request is not HTTP/1.1"
    )
