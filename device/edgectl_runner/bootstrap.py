"""Unpacks wheels into a private folder: what pip would do, without pip, root or the internet.

``env/<digest>/`` holds the packages of a set of wheels and is put on ``PYTHONPATH`` by the host;
nothing of the system's Python is touched (PEP 668 stays content). The digest names the set, so
that an upgrade gets a folder of its own and running things keep theirs.
"""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

from edgectl_runner.durable import (
    fsync_directory,
    make_directories,
    sha256_of,
    temporary_name,
    write_durably,
)
from edgectl_runner.failures import USAGE, RunnerError
from edgectl_runner.manifests import plain_name
from edgectl_runner.sessions import check_token
from edgectl_runner.space import check_space
from edgectl_runner.store import Store

__all__ = ["install_environment"]

_DIGEST = re.compile(r"[0-9a-f]{16}\Z")
# Left out of a device: test suites, type stubs, headers and the tracing build of the runtime.
_UNWANTED = re.compile(
    r"(^|/)(tests|testing/tests|include|_pyinstaller)/|\.pyi$|^iree/_runtime_libs_tracy/|^numpy/f2py/"
)
COMPLETE = ".complete"


def install_environment(store: Store, request: dict[str, Any]) -> dict[str, Any]:
    """Makes ``env/<digest>/`` from wheels in ``incoming/``; each is digested before it is opened.

    Raises:
        RunnerError: a wheel is missing, damaged or hostile, or there is no room.
    """
    digest, wheels = request.get("digest"), request.get("wheels")
    if not isinstance(digest, str) or not _DIGEST.match(digest) or not isinstance(wheels, list):
        raise RunnerError("the request names no environment", code=USAGE)
    target = store.root / "env" / digest
    who, token = str(request.get("who", ""))[:200], check_token(request.get("token"))
    with store.changing(who=who, verb="install-env", token=token):
        if (target / COMPLETE).exists():
            return {"digest": digest, "already_installed": True}
        make_directories(target.parent)
        paths = [_checked_wheel(store, wheel) for wheel in wheels]
        temporary = temporary_name(target)
        try:
            temporary.mkdir()
            for path in paths:
                _unpack(path, temporary)
            write_durably(temporary / COMPLETE, b"")
            # Some thousand small files: one sync of everything is much quicker than one each.
            os.sync()
            temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        fsync_directory(target.parent)
        for path in paths:
            path.unlink()
    return {"digest": digest, "already_installed": False}


def _checked_wheel(store: Store, wheel: Any) -> Path:
    if not isinstance(wheel, dict) or not isinstance(wheel.get("name"), str):
        raise RunnerError("a wheel has no name", code=USAGE)
    path = store.incoming / plain_name(wheel["name"])
    if not path.is_file():
        raise RunnerError(f"the wheel {path.name} did not arrive", next_step="deploy again")
    if sha256_of(path) != wheel.get("sha256"):
        path.unlink()
        raise RunnerError(
            f"the wheel {path.name} arrived damaged",
            cause="bytes were changed on the way",
            next_step="deploy again; it is then sent anew",
        )
    return path


def _unpack(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        members = [m for m in archive.infolist() if _wanted(m)]
        check_space(target, payload_bytes=sum(m.file_size for m in members), files=len(members))
        for member in members:
            name = member.filename
            if name.startswith("/") or ".." in name.split("/") or "\\" in name:
                raise RunnerError(f"the wheel {wheel.name} holds the unsafe name {name!r}")
            archive.extract(member, target)
            # zipfile drops permissions; the runtime's command line tools need theirs.
            mode = member.external_attr >> 16 & 0o777
            if mode & 0o100:
                (target / name).chmod(0o755)


def _wanted(member: zipfile.ZipInfo) -> bool:
    return not member.is_dir() and not _UNWANTED.search(member.filename)
