"""Devices by name: the file keeps what people wrote into it, and errors say what to type."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgectl.errors import ConfigurationError, UsageError
from edgectl.inventory import EMULATOR, DeviceEntry, Inventory, resolve


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    return Inventory(path=tmp_path / "config" / "devices.toml")


def test_first_device_becomes_the_default(inventory: Inventory) -> None:
    inventory.add("kitchen", "pi@kitchen.local")
    inventory.add("garden", "pi@10.0.0.7:2222", target="rpi3")
    assert inventory.entries() == (
        DeviceEntry(name="kitchen", destination="pi@kitchen.local", is_default=True),
        DeviceEntry(name="garden", destination="pi@10.0.0.7:2222", target="rpi3"),
    )
    assert resolve(None, inventory=inventory).name == "kitchen"
    assert resolve("garden", inventory=inventory).destination == "pi@10.0.0.7:2222"


def test_another_default(inventory: Inventory) -> None:
    inventory.add("a", "a")
    inventory.add("b", "b", default=True)
    assert resolve(None, inventory=inventory).name == "b"
    inventory.set_default("a")
    assert resolve(None, inventory=inventory).name == "a"
    inventory.set_default(EMULATOR)
    assert resolve(None, inventory=inventory).name == EMULATOR


def test_comments_and_order_survive_every_change(inventory: Inventory) -> None:
    inventory.path.parent.mkdir()
    inventory.path.write_text(
        "# my boards\n"
        'default = "old"  # the one in the hall\n\n'
        "[devices.old]\n# bought 2020\n"
        'destination = "pi@old"\n'
        'note = "loud fan"\n'
    )
    inventory.add("new", "pi@new")
    inventory.set_default("new")
    inventory.remove("new")
    inventory.add("third", "pi@third")
    text = inventory.path.read_text()
    for kept in ("# my boards", "# bought 2020", 'note = "loud fan"'):
        assert kept in text
    assert [entry.name for entry in inventory.entries()] == ["old", "third"]


def test_with_nothing_configured_the_error_names_both_ways_on(inventory: Inventory) -> None:
    with pytest.raises(ConfigurationError, match="no device is configured") as caught:
        resolve(None, inventory=inventory)
    assert "edgectl device add NAME user@host" in (caught.value.next_step or "")
    assert "--device emulator" in (caught.value.next_step or "")
    assert caught.value.exit_code == 3


def test_two_devices_and_no_default(inventory: Inventory) -> None:
    inventory.add("a", "a")
    inventory.add("b", "b")
    inventory.add("c", "c")
    inventory.remove("a")
    with pytest.raises(ConfigurationError, match="none of b, c is the default"):
        resolve(None, inventory=inventory)
    inventory.remove("b")
    assert resolve(None, inventory=inventory).name == "c", "the only one needs no naming"


def test_addresses_and_ssh_aliases_need_no_entry(inventory: Inventory) -> None:
    entry = resolve("pi@10.0.0.9:2222", inventory=inventory)
    assert (entry.name, entry.destination) == (None, "pi@10.0.0.9:2222")


def test_emulator_is_reserved(inventory: Inventory) -> None:
    with pytest.raises(UsageError, match="reserved"):
        inventory.add(EMULATOR, "pi@host")
    assert resolve(EMULATOR, inventory=inventory).name == EMULATOR
    made = DeviceEntry(name=EMULATOR, destination="pi@127.0.0.1:2022")
    assert resolve(EMULATOR, inventory=inventory, reserved={EMULATOR: lambda: made}) is made
    inventory.set_default(EMULATOR)
    assert resolve(None, inventory=inventory, reserved={EMULATOR: lambda: made}) is made


@pytest.mark.parametrize("name", ["", "-a", "a b", "a.b", "ä", "a" * 65, "a\n", "../x"])
def test_what_cannot_be_a_name(inventory: Inventory, name: str) -> None:
    with pytest.raises(UsageError):
        inventory.add(name, "pi@host")
    assert not inventory.path.exists()


def test_taken_and_unknown_names(inventory: Inventory) -> None:
    inventory.add("a", "pi@a")
    with pytest.raises(UsageError, match=r"already \(pi@a\)"):
        inventory.add("a", "pi@b")
    inventory.add("a", "pi@b", replace=True)
    assert resolve("a", inventory=inventory).destination == "pi@b"
    for action in (inventory.remove, inventory.set_default):
        with pytest.raises(UsageError, match="no device 'x'") as caught:
            action("x")
        assert "there are: a" in (caught.value.cause or "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("devices = [", "not valid TOML"),
        ("devices = 3", "must be a table"),
        ("[devices]\na = 3", "must be a table"),
        ("[devices.a]\nhost = 'x'", "has no destination"),
        ("[devices.a]\ndestination = 3", "has no destination"),
        ("[devices.a]\ndestination = 'x'\ntarget = 3", "must be text"),
        ('default = "b"\n[devices.a]\ndestination = "x"', "default device 'b' is not in the file"),
    ],
)
def test_damaged_files_are_named(inventory: Inventory, text: str, words: str) -> None:
    inventory.path.parent.mkdir()
    inventory.path.write_text(text)
    with pytest.raises(ConfigurationError, match=words) as caught:
        resolve(None, inventory=inventory)
    assert str(inventory.path) in caught.value.message


def test_failed_write_keeps_the_old_file(inventory: Inventory) -> None:
    inventory.add("a", "pi@a")
    before = inventory.path.read_text()
    inventory.path.with_name("x").write_text("")
    blocked = Inventory(path=inventory.path.with_name("x") / "devices.toml")
    with pytest.raises(ConfigurationError, match="cannot write"):
        blocked.add("b", "pi@b")
    assert inventory.path.read_text() == before
    assert sorted(p.name for p in inventory.path.parent.iterdir()) == ["devices.toml", "x"]
