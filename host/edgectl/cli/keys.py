"""``edgectl keys``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgectl.cli.console import Output
from edgectl.cli.operating import Managed, dry_run_option, managed_device_options
from edgectl.cli.options import output_options
from edgectl.errors import UsageError
from edgectl.settings import load_settings

if TYPE_CHECKING:
    from rich.console import Console

    from edgectl.signing import SigningKey

__all__ = ["command"]

_PUBLIC_KEY_DIGITS = 64


@click.group("keys")
def command() -> None:
    """Keys that sign models, and the keys that a device takes models from.

    The first deployment makes a key by itself, and a device remembers the first key that it
    meets; from then on it takes models signed by that key (or its successors) only.
    """


def _folder() -> Path:
    return load_settings().config_dir / "keys"


@command.command("create")
@click.argument("name", default="default")
@output_options
def create(*, output: Output, name: str) -> None:
    """Make a key called NAME."""
    from edgectl.signing import create_key

    _show_key(output, create_key(_folder(), name), "made")


@command.command("list")
@output_options
def list_(*, output: Output) -> None:
    """Show the keys of this user; what a device trusts: edgectl keys trusted."""
    from edgectl.signing import list_keys

    found = list_keys(_folder())

    def render(console: Console) -> None:
        from rich.table import Table

        if not found:
            console.print("no key yet; the first deployment makes one", markup=False)
            return
        table = Table("name", "key id", "public key", "successor of")
        for key in found:
            table.add_row(key.name, key.key_id, key.public_key.hex(), str(len(key.successions)))
        console.print(table)

    output.result({"keys": [_key_document(key) for key in found]}, render)


@command.command("rotate")
@click.argument("name", default="default")
@output_options
def rotate(*, output: Output, name: str) -> None:
    """Replace the key NAME; devices that trust it follow at their next deployment.

    The old key signs a statement that names the new one, and is kept in the folder `retired`.
    """
    from edgectl.signing import rotate_key

    _show_key(output, rotate_key(_folder(), name), "rotated")


@command.command("trusted")
@managed_device_options
def trusted(*, output: Output, managed: Callable[[], AbstractContextManager[Managed]]) -> None:
    """Show which keys a device trusts, and its mode."""
    from edgectl.remote.releases import change_trust

    with managed() as found:
        answer = change_trust(found.device, found.handle)
    _show_trust(output, found, answer, dry_run=False)


@command.command("trust")
@click.argument("key")
@dry_run_option
@managed_device_options
def trust(
    *,
    output: Output,
    managed: Callable[[], AbstractContextManager[Managed]],
    key: str,
    dry_run: bool,
) -> None:
    """Let a device take models signed by KEY.

    KEY is the name or id of a key of yours, or the 64 digits of somebody else's public key
    (`edgectl keys list` shows them).
    """
    from edgectl.remote.releases import change_trust

    public_key = _public_key(key)
    with managed() as found:
        add = None if dry_run else public_key
        answer = change_trust(found.device, found.handle, add=add)
    if dry_run:
        entry = {"key_id": _key_id(public_key), "state": "active"}
        keys = [k for k in answer["keys"] if k["key_id"] != entry["key_id"]]
        answer = {**answer, "keys": [*keys, entry]}
    _show_trust(output, found, answer, dry_run=dry_run)


@command.command("distrust")
@click.argument("key")
@dry_run_option
@managed_device_options
def distrust(
    *,
    output: Output,
    managed: Callable[[], AbstractContextManager[Managed]],
    key: str,
    dry_run: bool,
) -> None:
    """Take KEY away from a device: what it signed is neither taken nor run there any more.

    KEY is a key's id, or the name of a key of yours.
    """
    from edgectl.remote.releases import change_trust

    mine = _mine(key)
    doomed = mine.key_id if mine is not None else key
    with managed() as found:
        if dry_run:
            answer = change_trust(found.device, found.handle)
            have = [k["key_id"] for k in answer["keys"]]
            if doomed not in have:
                raise UsageError(
                    f"the device trusts no key {doomed} (it trusts {', '.join(have) or 'none'})",
                    next_step="edgectl keys trusted",
                )
            keys = [k for k in answer["keys"] if k["key_id"] != doomed]
            answer = {**answer, "keys": keys}
        else:
            answer = change_trust(found.device, found.handle, remove=doomed)
    _show_trust(output, found, answer, dry_run=dry_run)


@command.command("mode")
@click.argument("mode", type=click.Choice(["first-use", "listed"]))
@dry_run_option
@managed_device_options
def mode_(
    *,
    output: Output,
    managed: Callable[[], AbstractContextManager[Managed]],
    mode: str,
    dry_run: bool,
) -> None:
    """Set whom a device trusts: the key that it meets first, or listed keys only."""
    from edgectl.remote.releases import change_trust

    with managed() as found:
        answer = change_trust(found.device, found.handle, mode=None if dry_run else mode)
    answer = {**answer, "mode": mode}
    if mode == "listed" and not answer["keys"]:
        output.say("warning: no key is listed, so this device takes nothing now")
        output.say("next:    edgectl keys trust default")
    _show_trust(output, found, answer, dry_run=dry_run)


def _mine(text: str) -> SigningKey | None:
    from edgectl.signing import list_keys

    return next((k for k in list_keys(_folder()) if text in (k.name, k.key_id)), None)


def _public_key(text: str) -> bytes:
    """The 32 bytes of a public key, from what was typed.

    Raises:
        UsageError: it is neither a key of this user nor a public key.
    """
    mine = _mine(text)
    if mine is not None:
        return mine.public_key
    try:
        if len(text) == _PUBLIC_KEY_DIGITS:
            return bytes.fromhex(text)
    except ValueError:
        pass
    raise UsageError(
        f"{text!r} is neither a key of yours nor a public key of 64 hexadecimal digits",
        cause="a key id does not hold the key; only the key's owner can tell its 64 digits",
        next_step="edgectl keys list (on the computer that has the key)",
    )


def _key_id(public_key: bytes) -> str:
    import hashlib

    return hashlib.sha256(public_key).hexdigest()[:16]


def _key_document(key: SigningKey) -> dict[str, Any]:
    return {
        "name": key.name,
        "key_id": key.key_id,
        "public_key": key.public_key.hex(),
        "predecessors": len(key.successions),
        "path": str(key.path),
    }


def _show_key(output: Output, key: SigningKey, verb: str) -> None:
    text = f"{verb} key {key.name}: {key.key_id} ({key.path})"
    output.result(
        {"key": _key_document(key)},
        lambda console: console.print(text, markup=False, highlight=False),
    )


def _show_trust(
    output: Output, found: Managed, answer: Mapping[str, Any], *, dry_run: bool
) -> None:
    document = {
        "device": found.device.label,
        "mode": answer["mode"],
        "keys": list(answer["keys"]),
        "dry_run": dry_run,
    }

    def render(console: Console) -> None:
        would = " (would be; nothing was changed)" if dry_run else ""
        console.print(
            f"{found.device.label}: mode {answer['mode']}{would}", markup=False, highlight=False
        )
        for key in answer["keys"]:
            console.print(f"  {key['key_id']}  {key['state']}", markup=False, highlight=False)
        if not answer["keys"]:
            console.print("  no key", highlight=False)

    output.result(document, render)
