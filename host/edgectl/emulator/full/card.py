"""A memory card that forgets: a block device for qemu whose last writes are lost with the power.

``python -m edgectl.emulator.full.card IMAGE SOCKET SEED`` serves ``IMAGE`` over the NBD protocol
on a UNIX socket, to one client, and ends with it. Like the cache of a real card, it
acknowledges a write before it is safe: what was written since the last flush lies in memory.

- The client says goodbye (the machine was shut down): everything is kept.
- The client vanishes (qemu was killed, as a power cut does): of each 512-byte sector that was
  not flushed, in any order, chance decides whether it reached the card. So a write can be lost
  while a later one is kept, and a page can be torn.

On SIGUSR1 it leaves the image that a power cut at that very moment would leave (``cuts/N.img``
beside ``IMAGE``), and goes on: one deployment can be cut at many points.

Killing qemu alone loses nothing that the guest had handed over, since the host's page cache
lives on; a file that was renamed but not flushed would look safe when it is not.

Protocol: NetworkBlockDevice, doc/proto.md, fixed newstyle handshake, simple replies.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import FrameType

__all__ = ["Card", "serve"]

SECTOR_BYTES = 512
# Of what was not flushed: sometimes nothing, sometimes everything is kept, mostly some.
KEEP_SHARES = (0.0, 0.5, 0.5, 0.9, 1.0)
_MAX_REQUEST_BYTES = 64 << 20

_OPTION_MAGIC, _REPLY_MAGIC = 0x49484156454F5054, 0x3E889045565A9
_REQUEST, _SIMPLE_REPLY = 0x25609513, 0x67446698
_OPT_EXPORT_NAME, _OPT_ABORT, _OPT_INFO, _OPT_GO = 1, 2, 6, 7
_REP_ACK, _REP_INFO, _REP_UNSUPPORTED = 1, 3, (1 << 31) + 1
_READ, _WRITE, _GOODBYE, _FLUSH = 0, 1, 2, 3
_FUA = 1
_FLAGS = 1 | 1 << 2 | 1 << 3  # has flags, flush, FUA
_EINVAL, _EIO = 22, 5


class Card:
    """The image file, and above it the sectors that are not safe yet."""

    def __init__(self, image: Path):
        self._file = os.open(image, os.O_RDWR)
        self.size_bytes = os.fstat(self._file).st_size
        self.unsafe: dict[int, bytes] = {}

    def read(self, offset: int, length: int) -> bytes:
        """What the machine sees: the newest, safe or not. Offsets are of whole sectors."""
        data = bytearray(os.pread(self._file, length, offset))
        if self.unsafe:
            first = offset // SECTOR_BYTES
            for number in range(length // SECTOR_BYTES):
                sector = self.unsafe.get(first + number)
                if sector is not None:
                    data[number * SECTOR_BYTES : (number + 1) * SECTOR_BYTES] = sector
        return bytes(data)

    def write(self, offset: int, data: bytes, *, safe: bool = False) -> None:
        """Takes sectors; ``safe`` ones (FUA) are on the card at once."""
        first = offset // SECTOR_BYTES
        for number in range(len(data) // SECTOR_BYTES):
            if safe:
                self.unsafe.pop(first + number, None)
            else:
                sector = data[number * SECTOR_BYTES : (number + 1) * SECTOR_BYTES]
                self.unsafe[first + number] = sector
        if safe:
            os.pwrite(self._file, data, offset)

    def flush(self) -> None:
        """Makes everything safe."""
        for number, sector in self.unsafe.items():
            os.pwrite(self._file, sector, number * SECTOR_BYTES)
        self.unsafe.clear()

    def lose_power(self, dice: random.Random, keep_share: float) -> tuple[int, int]:
        """Keeps some of what was not safe; returns (sectors lost, sectors that were not safe)."""
        total = len(self.unsafe)
        lost = [n for n in self.unsafe if dice.random() >= keep_share]
        for number in lost:
            del self.unsafe[number]
        self.flush()
        return len(lost), total

    def copy_as_cut(self, copy: Path, dice: random.Random, keep_share: float) -> tuple[int, int]:
        """Writes what a power cut now would leave; this card stays as it is."""
        partial = copy.with_suffix(".new")
        subprocess.run(
            ["cp", "--sparse=always", f"/proc/{os.getpid()}/fd/{self._file}", str(partial)],
            check=True,
        )
        kept = {n: s for n, s in self.unsafe.items() if dice.random() < keep_share}
        with partial.open("r+b") as file:
            for number, sector in kept.items():
                os.pwrite(file.fileno(), sector, number * SECTOR_BYTES)
        partial.replace(copy)
        return len(self.unsafe) - len(kept), len(self.unsafe)

    def close(self) -> None:
        """Closes the image."""
        os.close(self._file)


def serve(image: Path, address: Path, dice: random.Random) -> None:
    """Serves one client, and says in ``IMAGE.cut`` what a power cut took."""
    card = Card(image)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen(1)
        listener.settimeout(60)
        client, _ = listener.accept()
    client.settimeout(None)
    note = image.with_name(image.name + ".cut")
    note.unlink(missing_ok=True)
    _cut_on_signal(card, image.with_name("cuts"), dice)
    with client:
        try:
            polite = _greet(client, card) and _answer(client, card)
        except (ConnectionError, EOFError):
            polite = False
    if polite:
        card.flush()
    else:
        lost, total = card.lose_power(dice, dice.choice(KEEP_SHARES))
        note.write_text(json.dumps({"lost_sectors": lost, "unsafe_sectors": total}))
    card.close()


def _cut_on_signal(card: Card, folder: Path, dice: random.Random) -> None:
    def cut(_number: int, _frame: FrameType | None) -> None:
        # Possibly in the middle of a request: it was not acknowledged then, and may be torn.
        folder.mkdir(exist_ok=True)
        copy = folder / f"{len(list(folder.glob('*.json'))):03}.img"
        lost, total = card.copy_as_cut(copy, dice, dice.choice(KEEP_SHARES))
        note = {"lost_sectors": lost, "unsafe_sectors": total}
        partial = copy.with_suffix(".part")
        partial.write_text(json.dumps(note))
        partial.replace(copy.with_suffix(".json"))

    signal.signal(signal.SIGUSR1, cut)


def _greet(client: socket.socket, card: Card) -> bool:
    """The handshake; whether it ended in transmission."""
    client.sendall(b"NBDMAGIC" + struct.pack(">QH", _OPTION_MAGIC, 3))
    _receive(client, 4)
    while True:
        magic, option, length = struct.unpack(">QII", _receive(client, 16))
        if magic != _OPTION_MAGIC or length > _MAX_REQUEST_BYTES:
            raise ConnectionError("not an NBD client")
        _receive(client, length)
        if option == _OPT_EXPORT_NAME:
            client.sendall(struct.pack(">QH", card.size_bytes, _FLAGS))
            return True
        if option in (_OPT_INFO, _OPT_GO):
            info = struct.pack(">HQH", 0, card.size_bytes, _FLAGS)
            blocks = struct.pack(">HIII", 3, SECTOR_BYTES, 4096, _MAX_REQUEST_BYTES)
            for kind, data in ((_REP_INFO, info), (_REP_INFO, blocks), (_REP_ACK, b"")):
                client.sendall(struct.pack(">QIII", _REPLY_MAGIC, option, kind, len(data)) + data)
            if option == _OPT_GO:
                return True
            continue
        kind = _REP_ACK if option == _OPT_ABORT else _REP_UNSUPPORTED
        client.sendall(struct.pack(">QIII", _REPLY_MAGIC, option, kind, 0))
        if option == _OPT_ABORT:
            return False


def _answer(client: socket.socket, card: Card) -> bool:
    """Answers requests until goodbye; whether there was one."""
    while True:
        magic, flags, kind, handle, offset, length = struct.unpack(">IHHQQI", _receive(client, 28))
        if magic != _REQUEST or length > _MAX_REQUEST_BYTES:
            raise ConnectionError("not an NBD request")
        data = _receive(client, length) if kind == _WRITE else b""
        if kind == _GOODBYE:
            return True
        error, answer = _carry_out(card, kind, flags, offset, length, data)
        client.sendall(struct.pack(">IIQ", _SIMPLE_REPLY, error, handle) + answer)


def _carry_out(
    card: Card, kind: int, flags: int, offset: int, length: int, data: bytes
) -> tuple[int, bytes]:
    if kind == _FLUSH:
        card.flush()
        return 0, b""
    whole = offset % SECTOR_BYTES == 0 and length % SECTOR_BYTES == 0
    if kind not in (_READ, _WRITE) or not whole or offset + length > card.size_bytes:
        return _EINVAL, b""
    try:
        if kind == _READ:
            return 0, card.read(offset, length)
        card.write(offset, data, safe=bool(flags & _FUA))
    except OSError:
        return _EIO, b""
    return 0, b""


def _receive(client: socket.socket, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        piece = client.recv(min(length - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]), random.Random(int(sys.argv[3])))  # noqa: S311
