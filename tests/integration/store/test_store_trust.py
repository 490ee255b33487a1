"""What a device takes and from whom: signatures, keys and their rotation, sequence numbers."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_bundles import LoopbackDevice

from edgectl import signing
from edgectl.errors import ConfigurationError, DeviceError, UsageError
from edgectl.remote.agent_calls import call_runner
from edgectl.remote.push import push_bundle, run_release
from edgectl_runner.contract import RunRequest

Bundles = Callable[..., Path]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def installed(device: LoopbackDevice) -> set[str]:
    return {p.name for p in (device.root / "releases").glob("[!.]*")}


def test_the_first_key_is_remembered_and_others_are_refused(
    device: LoopbackDevice, handle: Any, affine: Bundles, keys: Path
) -> None:
    mine, other = signing.create_key(keys, "mine"), signing.create_key(keys, "other")
    first = push_bundle(device, handle, affine(), key=mine).release
    with pytest.raises(ConfigurationError, match=f"unknown key {other.key_id}"):
        push_bundle(device, handle, affine("b.edgectl", name="b"), key=other)
    with pytest.raises(ConfigurationError, match="it is not signed"):
        push_bundle(device, handle, affine("b.edgectl", name="b"))
    assert installed(device) == {first}
    assert run_release(device, handle, RunRequest(release=first)).latency is not None


def test_a_signature_that_was_taken_away_is_missed(
    device: LoopbackDevice, handle: Any, affine: Bundles, keys: Path
) -> None:
    unsigned = push_bundle(device, handle, affine("old.edgectl", precision="old")).release
    signed = push_bundle(device, handle, affine(), key=signing.create_key(keys)).release
    (device.root / "releases" / signed / "signature.json").unlink()
    with pytest.raises(ConfigurationError, match="it is not signed"):
        run_release(device, handle, RunRequest(release=signed))
    # Taken before any key was known, and remembered as such.
    assert run_release(device, handle, RunRequest(release=unsigned)).latency is not None


def test_nothing_travels_before_the_signature_is_checked(
    device: LoopbackDevice, handle: Any, affine: Bundles, keys: Path
) -> None:
    push_bundle(device, handle, affine(), key=signing.create_key(keys, "mine"))
    device.sent.clear()
    with pytest.raises(ConfigurationError):
        push_bundle(device, handle, affine("b.edgectl", name="b"))
    assert device.sent == []


def test_an_altered_manifest_does_not_fit_its_signature(
    device: LoopbackDevice, handle: Any, affine: Bundles, keys: Path, tmp_path: Path
) -> None:
    key = signing.create_key(keys)
    good, evil = affine(), tmp_path / "evil.edgectl"
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(evil, "w") as target:
        manifest = source.read("manifest.json")
        signature = signing.sign_manifest(manifest, key)
        for name in source.namelist():
            data = source.read(name)
            if name == "manifest.json":
                data = data.replace(b'"name":"tiny"', b'"name":"evil"')
            target.writestr(name, data)
        target.writestr("signature.json", json.dumps(signature))
    with pytest.raises(ConfigurationError, match="does not fit its manifest"):
        push_bundle(device, handle, evil)
    assert installed(device) == set()


def test_a_rotated_key_is_followed_and_the_old_one_takes_nothing_new(
    device: LoopbackDevice, handle: Any, affine: Bundles, keys: Path
) -> None:
    old = signing.create_key(keys)
    first = push_bundle(device, handle, affine(), key=old).release
    signing.rotate_key(keys)
    new = signing.rotate_key(keys)
    assert len(new.successions) == 2
    push_bundle(device, handle, affine("b.edgectl", name="b"), key=new)
    with pytest.raises(ConfigurationError, match=f"retired key {old.key_id}"):
        push_bundle(device, handle, affine("c.edgectl", name="c"), key=old)
    # What the retired key signed still runs, until the key is removed.
    assert run_release(device, handle, RunRequest(release=first)).latency is not None
    call_runner(device, handle, "trust", {"remove": old.key_id})
    with pytest.raises(ConfigurationError, match="no longer trusted"):
        run_release(device, handle, RunRequest(release=first))


def test_a_forged_succession_is_not_followed(
    device: LoopbackDevice, handle: Any, affine: Bundles, keys: Path
) -> None:
    mine, thief = signing.create_key(keys, "mine"), signing.create_key(keys, "thief")
    push_bundle(device, handle, affine(), key=mine)
    statement = {
        "old": mine.public_key.hex(),
        "new": thief.public_key.hex(),
        "signature": thief.private_key.sign(b"edgectl successor v1\0" + thief.public_key).hex(),
    }
    forged = signing.SigningKey(
        name="thief",
        path=thief.path,
        private_key=thief.private_key,
        successions=(statement,),
    )
    with pytest.raises(ConfigurationError, match="unknown key"):
        push_bundle(device, handle, affine("b.edgectl", name="b"), key=forged)
    assert len(call_runner(device, handle, "trust", {})["keys"]) == 1


def test_listed_mode_takes_nothing_until_a_key_is_listed(
    device: LoopbackDevice, handle: Any, affine: Bundles, keys: Path
) -> None:
    key = signing.create_key(keys)
    call_runner(device, handle, "trust", {"mode": "listed"})
    with pytest.raises(ConfigurationError, match="signed by the unknown key"):
        push_bundle(device, handle, affine(), key=key)
    with pytest.raises(ConfigurationError, match="not signed"):
        push_bundle(device, handle, affine())
    call_runner(device, handle, "trust", {"add": key.public_key.hex()})
    assert push_bundle(device, handle, affine(), key=key).release


def test_a_damaged_list_of_keys_trusts_nobody(
    device: LoopbackDevice, handle: Any, affine: Bundles, keys: Path
) -> None:
    key = signing.create_key(keys)
    push_bundle(device, handle, affine(), key=key)
    (device.root / "trusted_keys.json").write_text('{"mode": "first-use"')
    with pytest.raises(ConfigurationError, match="list of trusted keys is damaged"):
        push_bundle(device, handle, affine("b.edgectl", name="b"), key=key)


def test_older_numbers_are_refused_unless_asked_for(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    push_bundle(device, handle, affine("2.edgectl", sequence=2))
    old = affine("1.edgectl", sequence=1)
    with pytest.raises(ConfigurationError, match=r"number 1 of 'tiny'.*has had number 2"):
        push_bundle(device, handle, old)
    assert push_bundle(device, handle, old, allow_downgrade=True).release
    with pytest.raises(ConfigurationError):
        push_bundle(device, handle, affine("1b.edgectl", sequence=1, precision="fp16"))


def test_another_version_of_the_runtime_is_refused(
    device: LoopbackDevice, handle: Any, affine: Bundles
) -> None:
    with pytest.raises(DeviceError, match=r"compiled by IREE 3\.2\.0, the device's runtime is 3"):
        push_bundle(device, handle, affine(iree_version="3.2.0"))


def test_a_key_that_others_may_read_is_not_used(keys: Path) -> None:
    key = signing.create_key(keys)
    key.path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="others than you may read"):
        signing.load_key(keys)


def test_keys_are_made_once_and_named_safely(keys: Path) -> None:
    first = signing.load_or_create_key(keys)
    assert signing.load_or_create_key(keys).key_id == first.key_id
    assert first.path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="already"):
        signing.create_key(keys)
    with pytest.raises(UsageError, match="cannot name a key"):
        signing.create_key(keys, "../evil")
