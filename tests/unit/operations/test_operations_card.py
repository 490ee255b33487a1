"""The card of the whole virtual Pi: what was flushed is safe, the rest is lost by chance."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgectl.emulator.full.card import SECTOR_BYTES, Card

SECTORS = 64


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "disk.img"
    path.write_bytes(bytes(SECTORS * SECTOR_BYTES))
    return path


def sector(letter: str) -> bytes:
    return letter.encode() * SECTOR_BYTES


def test_what_was_flushed_survives_and_what_was_not_may_not(image: Path) -> None:
    card = Card(image)
    card.write(0, sector("a"))
    card.flush()
    card.write(SECTOR_BYTES, sector("b"), safe=True)
    card.write(2 * SECTOR_BYTES, sector("c"))
    assert card.read(0, 3 * SECTOR_BYTES) == sector("a") + sector("b") + sector("c")
    assert card.lose_power(random.Random(1), 0.0) == (1, 1)
    card.close()
    data = image.read_bytes()
    assert data[: 3 * SECTOR_BYTES] == sector("a") + sector("b") + bytes(SECTOR_BYTES)


def test_a_later_write_can_be_kept_while_an_earlier_one_is_lost(image: Path) -> None:
    outcomes = set()
    for seed in range(30):
        image.write_bytes(bytes(SECTORS * SECTOR_BYTES))
        card = Card(image)
        card.write(0, sector("a"))
        card.write(SECTOR_BYTES, sector("b"))
        card.lose_power(random.Random(seed), 0.5)
        card.close()
        data = image.read_bytes()
        outcomes.add((data[:1] == b"a", data[SECTOR_BYTES : SECTOR_BYTES + 1] == b"b"))
    assert len(outcomes) == 4


class Client:
    """As much of an NBD client as is needed."""

    def __init__(self, address: Path):
        self.socket = socket.socket(socket.AF_UNIX)
        deadline = time.monotonic() + 30
        while True:
            try:
                self.socket.connect(str(address))
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        assert self.receive(8) == b"NBDMAGIC"
        self.receive(10)
        self.socket.sendall(struct.pack(">IQII", 3, 0x49484156454F5054, 1, 0))
        size, _flags = struct.unpack(">QH", self.receive(10))
        assert size == SECTORS * SECTOR_BYTES

    def receive(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            data += self.socket.recv(length - len(data)) or pytest.fail("the card went away")
        return data

    def ask(self, kind: int, offset: int = 0, length: int = 0, data: bytes = b"") -> int:
        request = struct.pack(">IHHQQI", 0x25609513, 0, kind, 7, offset, length or len(data))
        self.socket.sendall(request + data)
        magic, error, handle = struct.unpack(">IIQ", self.receive(16))
        assert (magic, handle) == (0x67446698, 7)
        return int(error)


@pytest.fixture
def served(image: Path, tmp_path: Path):
    address = tmp_path / "card.sock"
    command = [sys.executable, "-m", "edgectl.emulator.full.card", image, address, "1"]
    with subprocess.Popen(command) as process:
        client = Client(address)
        yield client, process
        client.socket.close()
        process.kill()


def test_a_client_that_says_goodbye_loses_nothing(served, image: Path) -> None:
    client, process = served
    assert client.ask(1, 0, data=sector("x")) == 0
    client.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 2, 0, 0, 0))
    assert process.wait(10) == 0
    assert image.read_bytes()[:SECTOR_BYTES] == sector("x")
    assert not image.with_name("disk.img.cut").exists()


def test_a_client_that_vanishes_is_a_power_cut(served, image: Path) -> None:
    client, process = served
    assert client.ask(1, 0, data=sector("x")) == 0
    assert client.ask(3) == 0
    for number in range(1, SECTORS):
        assert client.ask(1, number * SECTOR_BYTES, data=sector("y")) == 0
    client.socket.close()
    assert process.wait(10) == 0
    data = image.read_bytes()
    assert data[:SECTOR_BYTES] == sector("x")
    note = json.loads(image.with_name("disk.img.cut").read_text())
    assert note["unsafe_sectors"] == SECTORS - 1
    assert data.count(sector("y")) == SECTORS - 1 - note["lost_sectors"]


def test_an_image_can_be_taken_in_between(served, image: Path) -> None:
    client, process = served
    assert client.ask(1, 0, data=sector("x")) == 0
    os.kill(process.pid, signal.SIGUSR1)
    note = image.with_name("cuts") / "000.json"
    deadline = time.monotonic() + 20
    while not note.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert json.loads(note.read_text())["unsafe_sectors"] == 1
    assert (image.with_name("cuts") / "000.img").stat().st_size == SECTORS * SECTOR_BYTES
    assert client.ask(3) == 0, "and it goes on"


def test_a_request_beyond_the_end_is_refused(served) -> None:
    client, _ = served
    assert client.ask(1, SECTORS * SECTOR_BYTES, data=sector("x")) != 0
    assert client.ask(1, 3, data=sector("x")) != 0
    assert client.ask(3) == 0
