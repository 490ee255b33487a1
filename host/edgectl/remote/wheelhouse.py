"""The device's Python packages, fetched on this computer: the Pi needs no internet and no pip.

    wheels = fetch_wheels(DevicePython(version=(3, 11), machine="aarch64", glibc=(2, 36)))

What was fetched for one kind of Python is kept in the cache folder and used again. The digest of
a wheel set names the folder on the device, so equal sets are never sent twice.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from edgectl.errors import ConfigurationError, DeviceError

__all__ = ["REQUIREMENTS", "SUPPORTED_PYTHONS", "DevicePython", "Wheel", "WheelSet", "fetch_wheels"]

# h11 (37 kB of plain Python) is for the service alone; one set of packages is simpler than two.
REQUIREMENTS = ("iree-base-runtime==3.13.*", "numpy>=2.0,<3", "h11>=0.16,<1")
SUPPORTED_PYTHONS = ((3, 11), (3, 12), (3, 13))
# The tags that wheels on the index carry; a device takes those up to its own glibc.
_GLIBC_MINORS = (17, 24, 26, 27, 28, 31, 34, 35, 39)
_WHEEL_NAME = re.compile(r"[A-Za-z0-9_.+-]+\.whl\Z")
DOWNLOAD_TIMEOUT_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePython:
    """What decides which wheels fit: version, machine and glibc of the device's Python."""

    version: tuple[int, int]
    machine: str
    glibc: tuple[int, int]

    @property
    def tag(self) -> str:
        """For example ``cp311-aarch64-glibc2.36``."""
        major, minor = self.version
        return f"cp{major}{minor}-{self.machine}-glibc{self.glibc[0]}.{self.glibc[1]}"

    @property
    def platforms(self) -> tuple[str, ...]:
        """Platform tags of wheels that this device can use, the newest first."""
        return tuple(
            f"manylinux_2_{minor}_{self.machine}"
            for minor in reversed(_GLIBC_MINORS)
            if (2, minor) <= self.glibc
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """One wheel file of the cache."""

    path: Path
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelSet:
    """All wheels for one kind of device; ``digest`` (16 hexadecimal digits) names the set."""

    digest: str
    wheels: tuple[Wheel, ...]


def fetch_wheels(
    python: DevicePython,
    *,
    requirements: Sequence[str] = REQUIREMENTS,
    cache: Path | None = None,
    extra_pip_arguments: Sequence[str] = (),
) -> WheelSet:
    """The wheels for that Python, from the cache or from the package index.

    Args:
        python: the device's.
        requirements: as pip spells them.
        cache: folder to keep wheels in; the user's cache folder by default.
        extra_pip_arguments: for example ``["--no-index", "--find-links", FOLDER]``.

    Raises:
        DeviceError: no wheels exist for that Python; names the tags tried and those found.
        ConfigurationError: pip is missing, or the index could not be reached.
    """
    if python.version not in SUPPORTED_PYTHONS:
        raise _unsupported_python(python)
    if not python.platforms:
        raise _no_wheel(python, "the device's C library is too old for any wheel", ())
    folder = cache if cache is not None else Path(platformdirs.user_cache_dir("edgectl")) / "wheels"
    key = hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:12]
    target = folder / f"{python.tag}-{key}"
    if (found := _read_set(target)) is not None:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    # Fetched beside its final place and renamed: an interrupted download is never taken for done.
    temporary = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
    try:
        _download(python, requirements, temporary, extra_pip_arguments)
        _write_listing(temporary)
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    result = _read_set(target)
    if result is None:
        raise ConfigurationError(f"the wheels in {target} cannot be read back")
    return result


def _download(
    python: DevicePython, requirements: Sequence[str], folder: Path, extra: Sequence[str]
) -> None:
    command = [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-input", "--only-binary=:all:", "--implementation", "cp"),
        *("--python-version", ".".join(map(str, python.version)), "--dest", str(folder)),
        *(part for platform in python.platforms for part in ("--platform", platform)),
        *extra,
        *requirements,
    ]
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOAD_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigurationError(
            f"fetching the device's packages took longer than {DOWNLOAD_TIMEOUT_S:.0f} s",
            cause="the package index is slow or unreachable",
            next_step="check the network and run the command again",
        ) from error
    if result.returncode == 0:
        return
    words = result.stderr.strip()
    if "No module named pip" in words:
        raise ConfigurationError(
            f"{sys.executable} has no pip, which fetches the device's packages",
            next_step=f"{sys.executable} -m ensurepip",
        )
    if "No matching distribution" in words or "ResolutionImpossible" in words:
        match = re.search(r"from versions: ([^)]*)\)", words)
        found = match.group(1) if match else "none"
        raise _no_wheel(python, words.splitlines()[-1].removeprefix("ERROR: "), (found,))
    raise ConfigurationError(
        "the device's packages could not be fetched: "
        f"{words.splitlines()[-1] if words else 'pip said nothing'}",
        cause="the package index is unreachable from this computer",
        next_step="check the network (pip's own settings apply) and run the command again",
    )


def _write_listing(folder: Path) -> None:
    listing = [
        {
            "name": path.name,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "size_bytes": path.stat().st_size,
        }
        for path in sorted(folder.glob("*.whl"))
    ]
    (folder / "wheels.json").write_text(json.dumps(listing, indent=1), encoding="utf-8")


def _read_set(folder: Path) -> WheelSet | None:
    try:
        listing = json.loads((folder / "wheels.json").read_text(encoding="utf-8"))
        wheels = tuple(
            Wheel(path=folder / w["name"], sha256=w["sha256"], size_bytes=w["size_bytes"])
            for w in listing
            if _WHEEL_NAME.match(w["name"])
        )
        if not wheels or any(w.path.stat().st_size != w.size_bytes for w in wheels):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    text = "\n".join(f"{w.path.name} {w.sha256}" for w in wheels)
    return WheelSet(digest=hashlib.sha256(text.encode()).hexdigest()[:16], wheels=wheels)


def _supported_range() -> str:
    first, last = SUPPORTED_PYTHONS[0], SUPPORTED_PYTHONS[-1]
    return f"Python {first[0]}.{first[1]} to {last[0]}.{last[1]}"


def _unsupported_python(python: DevicePython) -> DeviceError:
    return DeviceError(
        f"the device runs Python {python.version[0]}.{python.version[1]}; "
        f"the IREE runtime has wheels for {_supported_range()}",
        cause="the device's operating system is older or newer than what is supported",
        next_step="install a supported Python on the device and name it with --python, "
        "or use Raspberry Pi OS bookworm or trixie",
    )


def _no_wheel(python: DevicePython, words: str, found: Sequence[str]) -> DeviceError:
    return DeviceError(
        f"no wheels fit the device's Python ({words}); tags tried: {python.tag}, "
        f"{', '.join(python.platforms) or 'none'}; versions found: {', '.join(found) or 'none'}",
        cause=f"wheels exist for {_supported_range()} on 64-bit Linux with glibc 2.28 or newer",
        next_step="run 'edgectl doctor DEVICE' to see what the device has",
    )
