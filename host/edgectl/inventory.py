"""The devices that the user has named: ``devices.toml`` in edgectl's configuration folder.

    default = "kitchen"

    [devices.kitchen]
    destination = "pi@raspberrypi.local"
    target = "rpi4"                          # optional

The file is meant to be edited by hand too: comments and order are kept when edgectl changes it.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from edgectl.errors import ConfigurationError, UsageError
from edgectl.settings import Settings, load_settings

__all__ = ["EMULATOR", "DeviceEntry", "Inventory", "resolve"]

EMULATOR = "emulator"
"""Reserved: it always means the virtual Pi, which is not in the file."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEntry:
    """One device; ``name`` is ``None`` for an address that was typed and is not in the file."""

    name: str | None
    destination: str
    target: str | None = None
    is_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The file and what is done with it; nothing is kept in memory between calls."""

    path: Path = field(default_factory=lambda: load_settings().config_dir / "devices.toml")

    @classmethod
    def of(cls, settings: Settings) -> Inventory:
        """The inventory of that configuration folder."""
        return cls(path=settings.config_dir / "devices.toml")

    def entries(self) -> tuple[DeviceEntry, ...]:
        """All devices in the file's order.

        Raises:
            ConfigurationError: the file cannot be read or has something else in it.
        """
        document = self._read()
        default = document.get("default")
        return tuple(
            self._entry(str(name), table, default)
            for name, table in self._devices(document).items()
        )

    def find(self, name: str) -> DeviceEntry | None:
        """The device of that name, if there is one."""
        return next((entry for entry in self.entries() if entry.name == name), None)

    def default(self) -> DeviceEntry | None:
        """The default device: the one that the file names, or the only one there is.

        Raises:
            ConfigurationError: the file names a default that is not in it.
        """
        entries = self.entries()
        named = self._read().get("default")
        if named is not None:
            found = next((entry for entry in entries if entry.name == named), None)
            if found is None and named != EMULATOR:
                raise ConfigurationError(
                    f"{self.path}: the default device {named!r} is not in the file",
                    next_step="choose one with: edgectl device add NAME user@host --default",
                )
            return found or DeviceEntry(name=EMULATOR, destination="", is_default=True)
        return entries[0] if len(entries) == 1 else None

    def add(
        self,
        name: str,
        destination: str,
        *,
        target: str | None = None,
        default: bool = False,
        replace: bool = False,
    ) -> DeviceEntry:
        """Writes a device into the file; the first one becomes the default.

        Raises:
            UsageError: the name is taken, reserved, or cannot be a name.
            ConfigurationError: the file cannot be read or written.
        """
        if name == EMULATOR:
            raise UsageError(
                f"the name {EMULATOR!r} is reserved for the virtual Pi",
                next_step="choose another name",
            )
        if _NAME.match(name) is None:
            raise UsageError(
                f"{name!r} cannot be a device name",
                cause="names are letters, digits, '-' and '_', at most 64, no '-' or '_' first",
                next_step="for example: edgectl device add kitchen pi@raspberrypi.local",
            )
        document = self._read()
        devices = self._devices(document)
        if name in devices and not replace:
            raise UsageError(
                f"there is a device {name!r} already ({devices[name].get('destination')})",
                next_step=f"remove it first: edgectl device remove {name}",
            )
        table = devices[name] if name in devices else tomlkit.table()
        table["destination"] = destination
        if target is not None:
            table["target"] = target
        elif "target" in table:
            del table["target"]
        first = not devices
        if "devices" not in document:
            document["devices"] = tomlkit.table(is_super_table=True)
        document["devices"][name] = table
        if default or (first and "default" not in document):
            document["default"] = name  # tomlkit puts it before the first table
        self._write(document)
        return DeviceEntry(
            name=name,
            destination=destination,
            target=target,
            is_default=document.get("default") == name,
        )

    def remove(self, name: str) -> None:
        """Takes a device out of the file (and the default with it, if it was that).

        Raises:
            UsageError: there is none of that name.
        """
        document = self._read()
        devices = self._devices(document)
        if name not in devices:
            raise _unknown(name, tuple(map(str, devices)))
        del document["devices"][name]
        if document.get("default") == name:
            del document["default"]
        self._write(document)

    def set_default(self, name: str) -> None:
        """Makes a device (or the emulator) the default.

        Raises:
            UsageError: there is none of that name.
        """
        document = self._read()
        devices = self._devices(document)
        if name != EMULATOR and name not in devices:
            raise _unknown(name, tuple(map(str, devices)))
        document["default"] = name  # tomlkit puts it before the first table
        self._write(document)

    def _read(self) -> Any:
        try:
            return tomlkit.parse(self.path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return tomlkit.document()
        except (TOMLKitError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"{self.path} is not valid TOML: {error}",
                next_step=f"correct it, or remove it and add the devices again: {self.path}",
            ) from error
        except OSError as error:
            raise ConfigurationError(f"cannot read {self.path}: {error.strerror}") from error

    def _devices(self, document: Any) -> Mapping[str, Any]:
        devices = document.get("devices", {})
        if not isinstance(devices, Mapping):
            raise ConfigurationError(f"{self.path}: 'devices' must be a table, [devices.NAME]")
        return devices

    def _entry(self, name: str, table: Any, default: object) -> DeviceEntry:
        if not isinstance(table, Mapping):
            raise ConfigurationError(f"{self.path}: 'devices.{name}' must be a table")
        destination, target = table.get("destination"), table.get("target")
        if not isinstance(destination, str) or not destination:
            raise ConfigurationError(
                f"{self.path}: [devices.{name}] has no destination",
                next_step='give it one: destination = "user@host"',
            )
        if target is not None and not isinstance(target, str):
            raise ConfigurationError(f"{self.path}: devices.{name}.target must be text")
        return DeviceEntry(
            name=name,
            destination=str(destination),
            target=None if target is None else str(target),
            is_default=name == default,
        )

    def _write(self, document: Any) -> None:
        """Writes beside and renames, so that a crash leaves the old file or the new one."""
        temporary: str | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".devices-")
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(tomlkit.dumps(document))
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self.path)
        except OSError as error:
            if temporary is not None:
                with suppress(OSError):
                    Path(temporary).unlink()
            raise ConfigurationError(
                f"cannot write {self.path}: {error.strerror}",
                next_step=f"make {self.path.parent} writable",
            ) from error


def resolve(
    name_or_destination: str | None,
    *,
    settings: Settings | None = None,
    inventory: Inventory | None = None,
    reserved: Mapping[str, Callable[[], DeviceEntry]] | None = None,
) -> DeviceEntry:
    """From what was typed after ``--device`` (or nothing) to a device.

    A name of the file, ``emulator``, or any address or ssh alias; nothing means the default
    device. ``reserved`` maps reserved names to functions that make their entry; without it,
    ``emulator`` comes back with an empty destination and the caller starts it.

    Raises:
        ConfigurationError: nothing was typed and there is no default device.
        UsageError: what was typed is empty.
    """
    inventory = inventory or Inventory.of(settings or load_settings())
    if name_or_destination is None:
        entry = inventory.default()
        if entry is None:
            raise _no_default(inventory)
        name_or_destination = entry.name or entry.destination
    text = name_or_destination.strip()
    if not text:
        raise UsageError("the device name is empty", next_step="edgectl device list")
    if reserved is not None and text in reserved:
        return reserved[text]()
    if text == EMULATOR:
        return DeviceEntry(name=EMULATOR, destination="")
    return inventory.find(text) or DeviceEntry(name=None, destination=text)


def _no_default(inventory: Inventory) -> ConfigurationError:
    names = [entry.name for entry in inventory.entries() if entry.name]
    if names:
        return ConfigurationError(
            f"no device was named, and none of {', '.join(names)} is the default",
            next_step=f"add --device {names[0]} to the command, or use the virtual Pi:"
            " --device emulator",
        )
    return ConfigurationError(
        "no device is configured",
        cause="edgectl does not know yet where to run models",
        next_step="add yours: edgectl device add NAME user@host; or use the virtual Pi:"
        " --device emulator",
    )


def _unknown(name: str, known: tuple[str, ...]) -> UsageError:
    return UsageError(
        f"there is no device {name!r}",
        cause=f"there are: {', '.join(known)}" if known else "no device is configured",
        next_step="edgectl device list",
    )
