"""A TCP proxy that makes a network bad on purpose: slow, stuck, cut, or wrong in one bit.

    with ToxicProxy(port) as proxy:
        connect(f"user@127.0.0.1:{proxy.port}")
        proxy.toxics.blackhole = True

Toxics may be changed while bytes flow. ``up`` is from the client to the device.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from dataclasses import dataclass
from typing import Self


@dataclass(slots=True)
class Toxics:
    latency_s: float = 0.0  # for every byte, in either direction
    bytes_per_s: float | None = None  # in each direction
    slice_bytes: int | None = None  # forward in pieces of so many bytes
    blackhole: bool = False  # swallow everything, close nothing
    blackhole_after: int | None = None  # ... from so many bytes up
    reset_after: int | None = None  # RST on both sides after so many bytes up (per connection)
    flip_bit_at: int | None = None  # byte of the way up in which one bit is wrong


class ToxicProxy:
    """Listens on ``port`` of loopback and forwards to ``target_port``."""

    def __init__(
        self, target_port: int, toxics: Toxics | None = None, *, receive_buffer: int | None = None
    ):
        self.target_port = target_port
        self.receive_buffer = receive_buffer  # small: the client's socket fills up at once
        self.toxics = toxics or Toxics()
        self.bytes_up = 0
        self.bytes_down = 0
        self.connections = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(10):
            raise RuntimeError("the proxy did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._run())
        finally:
            self._loop.close()

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        listener = socket.socket()
        if self.receive_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
        listener.bind(("127.0.0.1", 0))
        server = await asyncio.start_server(self._accept, sock=listener)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            writers.append(far_writer)
            await asyncio.gather(
                self._pump(reader, far_writer, writers, up=True),
                self._pump(far_reader, writer, writers, up=False),
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in writers:
                with contextlib.suppress(OSError, RuntimeError):
                    end.close()
            self._tasks.discard(task)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        writers: list[asyncio.StreamWriter],
        *,
        up: bool,
    ) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)
        forwarder = asyncio.create_task(self._forward(queue, writer))
        seen = 0
        try:
            while data := await reader.read(16384):
                seen += len(data)
                if up:
                    self.bytes_up += len(data)
                    data = self._spoil(data, seen)
                    limit = self.toxics.reset_after
                    if limit is not None and seen >= limit:
                        _reset(writers)
                        return
                    if self.toxics.blackhole_after is not None and (
                        self.bytes_up >= self.toxics.blackhole_after
                    ):
                        self.toxics.blackhole = True
                else:
                    self.bytes_down += len(data)
                if self.toxics.blackhole:
                    await self._stop.wait()
                await queue.put((self._loop.time() + self.toxics.latency_s, data))
            await queue.put((0.0, b""))
            await forwarder
        finally:
            forwarder.cancel()

    def _spoil(self, data: bytes, seen: int) -> bytes:
        at = self.toxics.flip_bit_at
        if at is None or not seen - len(data) <= at < seen:
            return data
        spoiled = bytearray(data)
        spoiled[at - (seen - len(data))] ^= 1
        return bytes(spoiled)

    async def _forward(
        self, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        while True:
            due, data = await queue.get()
            if not data:
                with contextlib.suppress(OSError):
                    writer.write_eof()
                return
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            size = self.toxics.slice_bytes or len(data)
            for start in range(0, len(data), size):
                piece = data[start : start + size]
                if self.toxics.blackhole:
                    await self._stop.wait()
                writer.write(piece)
                await writer.drain()
                if self.toxics.bytes_per_s is not None:
                    await asyncio.sleep(len(piece) / self.toxics.bytes_per_s)
                elif self.toxics.slice_bytes is not None:
                    await asyncio.sleep(0)


def _reset(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        end = writer.get_extra_info("socket")
        # Closing with a linger time of zero sends RST instead of FIN.
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


@contextlib.contextmanager
def silent_listener():
    """A port that accepts connections and never says a word; yields the port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield listener.getsockname()[1]
