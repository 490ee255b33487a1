"""Files that are almost a model: each has its own message, and none is loaded."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import torch

from edgectl.errors import EdgectlError, UnsupportedModelError, UsageError
from edgectl.sources import TrustPolicy, load

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 4242\n"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (None, "There is no file"),
        (b"", "is empty"),
        (POINTER, r"Git LFS pointer.*4242 bytes \(sha256:4d7a21\)"),
        (b"\x00\x01\x02 not a model", "is not a model that edgectl knows"),
        (b"<!DOCTYPE html><html>404</html>", "web page"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 50, "HDF5"),
        (b"\x93NUMPY\x01\x00", "NumPy array"),
        (b"GGUF\x03\x00\x00\x00" + b"\0" * 50, "GGUF"),
        (b"\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00K\x01.", "plain pickle"),
    ],
)
def test_what_is_no_model_is_told(tmp_path: Path, content: bytes | None, word: str) -> None:
    path = tmp_path / "model.pt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=word) as caught:
        load(path)
    assert caught.value.exit_code == 2
    assert caught.value.next_step


def test_a_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        load(tmp_path)


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_truncated_download_tells_size_and_digest(tmp_path: Path, share: float) -> None:
    path = tmp_path / "model.pt"
    torch.save({"weight": torch.zeros(1000)}, path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(UsageError, match=r"cut off or damaged.*\d+ bytes, sha256 [0-9a-f]{64}"):
        load(path)


def test_a_truncated_safetensors_file_is_told(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}}).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 20)
    with pytest.raises(UsageError, match="ends after the file"):
        load(path)


@pytest.mark.parametrize(
    ("entries", "word"),
    [
        (
            {
                "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
            },
            "overlaps",
        ),
        ({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 8]}}, "another size"),
        ({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, "another size"),
        ({"a": {"dtype": "X9", "shape": [2], "data_offsets": [0, 8]}}, "header cannot be read"),
        ({"a": {"dtype": "F32", "shape": [2]}}, "header cannot be read"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [-8, 0]}}, "header cannot be read"),
    ],
)
def test_a_hostile_safetensors_header_is_refused(
    tmp_path: Path, entries: dict[str, object], word: str
) -> None:
    header = json.dumps(entries).encode()
    path = tmp_path / "m"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 16)
    with pytest.raises(UsageError, match=word):
        load(path)


def test_a_giant_safetensors_header_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes((1 << 40).to_bytes(8, "little") + b"{" + b" " * 100)
    with pytest.raises(UsageError, match="header claims"):
        load(path)


def test_a_zip_bomb_is_refused_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("m/version", "3\n")
        archive.writestr("m/data/0", b"\0" * (200 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(UsageError, match="would unpack to 2097"):
        load(path)


def test_overlapping_members_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "overlap.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", b"\0" * 1000)
    data = path.read_bytes()
    # The directory at the end claims a far larger member than the file has room for.
    path.write_bytes(data.replace((1000).to_bytes(4, "little"), (1 << 30).to_bytes(4, "little")))
    with pytest.raises(EdgectlError, match=r"members claim|cut off or damaged"):
        load(path)


def test_a_compiled_package_is_refused_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/archive_format", "pt2")
        archive.writestr("m/archive_version", "0")
        archive.writestr("m/data/aotinductor/model/model.wrapper.so", b"\x7fELF")
    with pytest.raises(UnsupportedModelError, match="AOTInductor") as caught:
        load(path, trust=TrustPolicy(trusted=True, state_dir=tmp_path))
    assert caught.value.exit_code == 4
    assert "torch.export.save" in (caught.value.next_step or "")


def test_a_program_of_a_newer_torch_names_both_versions(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    torch.export.save(program, path)
    newer = tmp_path / "newer.pt2"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(newer, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if "/models/" in info.filename:
                document = json.loads(data)
                document["schema_version"]["major"] += 1
                document["torch_version"] = "9.9.0"
                data = json.dumps(document).encode()
            new.writestr(info.filename, data)
    with pytest.raises(UnsupportedModelError, match=r"saved by torch 9\.9\.0"):
        load(newer, trust=TrustPolicy(trusted=True, state_dir=tmp_path))
