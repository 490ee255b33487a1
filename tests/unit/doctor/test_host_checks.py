"""Checks of this computer."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from edgectl.doctor import Status
from edgectl.doctor.host import disk, emulator_tools, packages, python_version
from edgectl.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(config_dir=tmp_path, state_dir=tmp_path, cache_dir=tmp_path / "not" / "yet")


@pytest.mark.parametrize(
    ("version", "specifier", "fits"),
    [
        ("2.13.0+cpu", "==2.13.*", True),
        ("2.14.0", "==2.13.*", False),
        ("2.1", "==2.13.*", False),
        ("20261001", "==20261001", True),
        ("20261002", "==20261001", False),
        ("0.18.2", ">=0.18,<0.19", True),
        ("0.19.0", ">=0.18,<0.19", False),
        ("2.0", ">=2.0,<3", True),
        ("3.0.0rc1", ">=2.0,<3", False),
    ],
)
def test_specifiers(version: str, specifier: str, fits: bool) -> None:
    assert packages.satisfies(version, specifier) is fits


def test_another_compiler_version_is_found(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda n: "3.14.0" if n == "iree-base-compiler" else real(n)
    )
    result = packages.check(settings)
    assert result.status is Status.FAILED
    assert "iree-base-compiler 3.14.0 is installed, ==3.13.* is wanted" in result.message
    assert "IREE's compiler is 3.14.0 and its runtime 3.13" in result.message


def test_a_missing_package_is_found(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name == "torch-mlir":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    result = packages.check(settings)
    assert result.status is Status.FAILED
    assert "torch-mlir is missing" in result.message


def test_python_versions(settings: Settings) -> None:
    for version, status in (
        ((3, 10), Status.FAILED),
        ((3, 11), Status.OK),
        ((3, 13), Status.OK),
        ((3, 14), Status.FAILED),
    ):
        assert python_version.check(settings, version).status is status


def test_disk_is_that_of_the_nearest_folder_that_exists(settings: Settings, tmp_path: Path) -> None:
    assert str(tmp_path) in disk.check(settings).message


def test_missing_tools_are_named_with_the_command_to_install_them(
    settings: Settings, tmp_path: Path
) -> None:
    result = emulator_tools.check(settings, str(tmp_path))
    assert result.status is Status.WARNING
    assert result.fix == "sudo apt install qemu-user-static mmdebstrap"
    for name in ("qemu-aarch64", "mmdebstrap"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    assert emulator_tools.check(settings, str(tmp_path)).status is Status.OK
