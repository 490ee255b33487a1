"""The systemd unit: what systemd's own tools say of it, and what cannot be put into it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from edgectl_runner.failures import RunnerError
from edgectl_runner.service.unit import UnitOptions, render_unit

ROOT = Path("/var/lib/edgectl")


def _options(**changes: object) -> UnitOptions:
    fields: dict[str, object] = {
        "root": ROOT,
        "command": ("/usr/bin/env", "true", str(ROOT)),
        "environment": {"PYTHONPATH": f"{ROOT}/runner/x:{ROOT}/env/y", "EDGECTL_ROOT": str(ROOT)},
        "user_name": "root",
    }
    return UnitOptions(**{**fields, **changes})  # type: ignore[arg-type]


def _analyze(*words: str) -> subprocess.CompletedProcess[str]:
    tool = shutil.which("systemd-analyze")
    assert tool is not None, "install systemd"
    return subprocess.run([tool, *words], capture_output=True, text=True, check=False)


# Root's own service cannot give up being root: its files are in root's home.
@pytest.mark.parametrize(("user_name", "most"), [("pi", 1.5), ("root", 1.8)])
@pytest.mark.parametrize("reachable", [False, True])
def test_systemds_exposure_score_is_low(
    tmp_path: Path, reachable: bool, user_name: str, most: float
) -> None:
    path = tmp_path / "edgectl.service"
    path.write_text(render_unit(_options(reachable=reachable, user_name=user_name)))
    done = _analyze("security", "--offline=yes", str(path))
    score = re.search(r"exposure level for .*: ([0-9.]+)", done.stdout)
    assert score is not None, done.stdout + done.stderr
    assert float(score[1]) <= most, done.stdout


@pytest.mark.parametrize("user_name", [None, "root"])
def test_systemd_finds_nothing_wrong(tmp_path: Path, user_name: str | None) -> None:
    path = tmp_path / "edgectl.service"
    path.write_text(render_unit(_options(user_name=user_name, memory_max_bytes=1 << 28)))
    done = _analyze("verify", "--man=no", str(path))
    assert done.returncode == 0, done.stderr
    assert "edgectl.service" not in done.stderr, done.stderr


def test_the_service_is_watched_and_restarted() -> None:
    text = render_unit(_options())
    for line in (
        "Type=notify",
        "WatchdogSec=15",
        "Restart=on-failure",
        "WantedBy=multi-user.target",
    ):
        assert line in text.splitlines()
    # IREE's loader cannot work with it.
    assert "MemoryDenyWriteExecute=yes" not in text


@pytest.mark.parametrize(
    "path", ["/srv/my models", "/srv/a\nExecStart=/bin/sh", '/srv/"', "/srv/$x"]
)
def test_a_path_that_would_change_the_unit_is_refused(path: str) -> None:
    with pytest.raises(RunnerError, match="cannot be written into a systemd unit"):
        render_unit(_options(root=Path(path)))
    with pytest.raises(RunnerError, match="cannot be written into a systemd unit"):
        render_unit(_options(command=("/usr/bin/python3", path)))


def test_percent_signs_stay_percent_signs() -> None:
    assert "/srv/a%%i" in render_unit(_options(root=Path("/srv/a%i")))
