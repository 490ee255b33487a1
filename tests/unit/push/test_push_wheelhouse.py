"""Which wheels a device gets, and what is said when there are none."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from edgectl.errors import ConfigurationError, DeviceError
from edgectl.remote.wheelhouse import DevicePython, fetch_wheels

PI = DevicePython(version=(3, 11), machine="aarch64", glibc=(2, 36))


def make_wheel(folder: Path, name: str, tag: str) -> None:
    folder.mkdir(exist_ok=True)
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-{tag}.whl", "w") as archive:
        archive.writestr(f"{name}.py", "x = 1\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")


def offline(folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    return ["--no-index", "--find-links", str(folder)]


def test_platform_tags_go_up_to_the_devices_glibc() -> None:
    assert PI.platforms[:2] == ("manylinux_2_35_aarch64", "manylinux_2_34_aarch64")
    assert "manylinux_2_39_aarch64" not in PI.platforms
    assert PI.platforms[-1] == "manylinux_2_17_aarch64"


def test_wheels_for_another_machine_are_fetched_and_kept(tmp_path: Path) -> None:
    index = tmp_path / "index"
    make_wheel(index, "edge_a", "cp311-cp311-manylinux_2_28_aarch64")
    make_wheel(index, "edge_a", "cp311-cp311-manylinux_2_28_x86_64")
    found = fetch_wheels(
        PI, requirements=["edge_a"], cache=tmp_path / "c", extra_pip_arguments=offline(index)
    )
    assert [w.path.name for w in found.wheels] == [
        "edge_a-1.0-cp311-cp311-manylinux_2_28_aarch64.whl"
    ]
    # From the cache: the index is gone.
    again = fetch_wheels(
        PI,
        requirements=["edge_a"],
        cache=tmp_path / "c",
        extra_pip_arguments=offline(tmp_path / "0"),
    )
    assert again == found


def test_no_fitting_wheel_lists_tags_tried_and_what_was_found(tmp_path: Path) -> None:
    index = tmp_path / "index"
    make_wheel(index, "edge_a", "cp311-cp311-manylinux_2_28_x86_64")
    with pytest.raises(DeviceError) as caught:
        fetch_wheels(
            PI, requirements=["edge_a"], cache=tmp_path / "c", extra_pip_arguments=offline(index)
        )
    assert "cp311-aarch64-glibc2.36" in caught.value.message
    assert "manylinux_2_28_aarch64" in caught.value.message
    assert "versions found: none" in caught.value.message
    assert "Python 3.11 to 3.13" in (caught.value.cause or "")
    assert list((tmp_path / "c").iterdir()) == []


@pytest.mark.parametrize("version", [(3, 9), (3, 10), (3, 14)])
def test_a_python_without_wheels_names_the_supported_range(version: tuple[int, int]) -> None:
    python = DevicePython(version=version, machine="aarch64", glibc=(2, 36))
    with pytest.raises(DeviceError, match=r"wheels for Python 3\.11 to 3\.13"):
        fetch_wheels(python)


def test_a_glibc_that_is_too_old_says_so() -> None:
    python = DevicePython(version=(3, 11), machine="aarch64", glibc=(2, 12))
    with pytest.raises(DeviceError, match="C library is too old"):
        fetch_wheels(python)


def test_an_unreachable_index_is_a_matter_of_this_computer(tmp_path: Path) -> None:
    with pytest.raises((ConfigurationError, DeviceError)) as caught:
        fetch_wheels(
            PI,
            requirements=["edge_a"],
            cache=tmp_path / "c",
            extra_pip_arguments=["--index-url", "http://127.0.0.1:9/", "--retries", "0"],
        )
    assert caught.value.next_step


def test_a_damaged_cache_is_fetched_again(tmp_path: Path) -> None:
    index = tmp_path / "index"
    make_wheel(index, "edge_a", "py3-none-any")
    options = {
        "requirements": ["edge_a"],
        "cache": tmp_path / "c",
        "extra_pip_arguments": offline(index),
    }
    found = fetch_wheels(PI, **options)
    found.wheels[0].path.write_bytes(b"cut off")
    assert fetch_wheels(PI, **options).digest == found.digest
    assert found.wheels[0].path.stat().st_size == found.wheels[0].size_bytes
