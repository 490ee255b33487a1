"""A bundle reads back as it was written, and nothing that was tampered with reads at all."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from edgectl.bundle import canonical_json, read_bundle, read_member, write_bundle
from edgectl.errors import UsageError
from edgectl.records import (
    CompiledModule,
    Coverage,
    Dialect,
    ExampleCall,
    ExportedModel,
    LoweredModule,
)
from edgectl_runner.contract import EntryPoint, OutputBinding, TensorSpec
from edgectl_toolchains import load_target

ROOT = Path(__file__).resolve().parents[3]


def compiled_module(vmfb: bytes = b"not really a module") -> CompiledModule:
    x = TensorSpec(name="x", shape=(2, 3), dtype="float32")
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    model = ExportedModel(
        name="tiny",
        source_kind="test",
        digest="0" * 64,
        program=None,
        inputs=(x,),
        output_names=("output", "stride"),
        calls=(ExampleCall(inputs=(value,), outputs=(value * 2, 8)),),
    )
    entry = EntryPoint(
        function="main",
        inputs=(x,),
        result_count=1,
        outputs=(
            OutputBinding(name="output", source="result", index=0, spec=x),
            OutputBinding(name="stride", source="literal", literal=8),
        ),
    )
    lowered = LoweredModule(
        model=model,
        dialect=Dialect.TOSA,
        bytecode=b"",
        entry_points=(entry,),
        initial_states={},
        coverage=Coverage(operators=()),
    )
    return CompiledModule(
        lowered=lowered,
        target=load_target("rpi4"),
        vmfb=vmfb,
        flags=("--x",),
        tools={"iree-base-compiler": "3.13.0"},
    )


@pytest.fixture
def bundle_path(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.edgectl"
    write_bundle(compiled_module(), path)
    return path


def rewrite(path: Path, change) -> None:
    """Writes the bundle anew with ``change(members)`` applied, keeping everything stored."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def test_what_was_written_reads_back(bundle_path):
    bundle = read_bundle(bundle_path)
    assert bundle.manifest.name == "tiny"
    assert bundle.manifest.cpu == "cortex-a72"
    assert "aes" not in bundle.manifest.cpu_features
    assert bundle.manifest.entry_points[0].outputs[1].literal == 8
    call = bundle.manifest.golden[0]
    expected = np.load(io.BytesIO(read_member(bundle, call.outputs[0])))
    np.testing.assert_array_equal(expected, np.arange(6, dtype=np.float32).reshape(2, 3) * 2)
    assert len(call.outputs) == 1, "a literal output has no golden file"


def test_the_same_inputs_give_the_same_bytes(tmp_path):
    first, second = tmp_path / "a.edgectl", tmp_path / "b.edgectl"
    one, two = write_bundle(compiled_module(), first), write_bundle(compiled_module(), second)
    assert first.read_bytes() == second.read_bytes()
    assert one.digest == two.digest


def test_the_manifest_follows_its_schema(bundle_path):
    schema = json.loads((ROOT / "host/edgectl/schemas/bundle-manifest.schema.json").read_text())
    with zipfile.ZipFile(bundle_path) as archive:
        jsonschema.validate(json.loads(archive.read("manifest.json")), schema)


def test_the_schemas_are_those_of_the_records():
    script = ROOT / "scripts" / "generate_schemas.py"
    run = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("keep", [0, 10, 200, 1000])
def test_a_truncated_bundle_is_refused(bundle_path, keep):
    bundle_path.write_bytes(bundle_path.read_bytes()[:keep])
    with pytest.raises(UsageError, match="truncated"):
        read_bundle(bundle_path)


def test_an_altered_module_is_refused(bundle_path):
    def change(members):
        members["module.vmfb"] = b"NOT really a module"

    rewrite(bundle_path, change)
    with pytest.raises(UsageError, match=r"module\.vmfb was altered"):
        read_bundle(bundle_path)


def test_every_flipped_byte_is_noticed(bundle_path):
    data = bytearray(bundle_path.read_bytes())
    with zipfile.ZipFile(bundle_path) as archive:
        info = archive.getinfo("module.vmfb")
    start = info.header_offset + 30 + len(info.filename)
    for position in range(start, start + info.file_size):
        flipped = bytearray(data)
        flipped[position] ^= 1
        bundle_path.write_bytes(flipped)
        with pytest.raises(UsageError):
            read_bundle(bundle_path)


def test_a_newer_bundle_says_so(bundle_path):
    def change(members):
        manifest = json.loads(members["manifest.json"])
        manifest["schema_version"] = 99
        members["manifest.json"] = canonical_json(manifest)

    rewrite(bundle_path, change)
    with pytest.raises(UsageError, match="version 99") as caught:
        read_bundle(bundle_path)
    assert "Upgrade" in (caught.value.next_step or "")


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "golden/../../evil", "a\\b"])
def test_members_that_leave_the_bundle_are_refused(bundle_path, name):
    rewrite(bundle_path, lambda members: members.update({name: b"x"}))
    with pytest.raises(UsageError, match="leaves the bundle"):
        read_bundle(bundle_path)


def test_members_that_the_manifest_does_not_name_are_refused(bundle_path):
    rewrite(bundle_path, lambda members: members.update({"extra.bin": b"x"}))
    with pytest.raises(UsageError, match="does not name"):
        read_bundle(bundle_path)


def test_a_bomb_is_refused_before_it_unpacks(bundle_path):
    with zipfile.ZipFile(bundle_path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", bytes(50 << 20))
    with pytest.raises(UsageError, match="compressed"):
        read_bundle(bundle_path)


def test_something_else_is_refused(tmp_path):
    path = tmp_path / "x.edgectl"
    path.write_bytes(b"hello")
    with pytest.raises(UsageError, match="not a bundle"):
        read_bundle(path)
    with pytest.raises(UsageError, match="no bundle"):
        read_bundle(tmp_path / "absent.edgectl")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("entry_points", "x"),
        ("files", {"a": 3}),
        ("name", None),
        ("golden", [{"entry_point": True}]),
    ],
)
def test_a_manifest_with_a_wrong_field_names_it(bundle_path, field, value):
    def change(members):
        manifest = json.loads(members["manifest.json"])
        manifest[field] = value
        members["manifest.json"] = canonical_json(manifest)

    rewrite(bundle_path, change)
    with pytest.raises(UsageError, match=field):
        read_bundle(bundle_path)
