"""What the host may rely on: one document out, errors as documents, light starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import edgectl_runner

PACKAGE = Path(edgectl_runner.__file__).parent


def run(root: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(root), "EDGECTL_ROOT": str(root / "e")}
    return subprocess.run(
        [sys.executable, "-P", "-m", "edgectl_runner", *arguments],
        input=stdin,
        capture_output=True,
        env=environment | {"PYTHONPATH": str(PACKAGE.parent)},
    )


@pytest.mark.parametrize(
    ("arguments", "stdin", "code"),
    [
        ((), b"", 2),
        (("reboot",), b"", 2),
        (("status", "extra"), b"", 2),
        (("status",), b"not json", 2),
        (("status",), b"[]", 2),
        (("status",), b"[" * 100_000, 2),
        (("install",), b"{}", 2),
        (("run",), b'{"release": "../../etc"}', 2),
        (("run",), b'{"release": "0123456789abcdef"}', 7),
        (("rollback",), b"{}", 7),
        (("rollback",), b'{"release": "-rf"}', 2),
        (("pin",), b"{}", 2),
        (("uninstall",), b'{"release": "../x"}', 2),
        (("discard",), b'{"names": ["../../x"]}', 2),
        (("hold",), b'{"token": "; reboot"}', 2),
        (("trust",), b'{"mode": "everybody"}', 2),
        (("history",), b'{"last": -1}', 2),
        (("status",), b"{}", 0),
        (("history",), b"", 0),
        (("settle",), b"", 0),
        (("gc",), b'{"dry_run": true}', 0),
    ],
)
def test_exactly_one_document_and_its_exit_code(
    tmp_path: Path, arguments: tuple[str, ...], stdin: bytes, code: int
) -> None:
    done = run(tmp_path, *arguments, stdin=stdin)
    assert done.stdout.count(b"\n") == 1
    document = json.loads(done.stdout)
    assert done.returncode == code
    if code:
        assert document["error"]["code"] == code
        assert document["error"]["message"]
        assert set(document["error"]) >= {"code", "message", "cause", "next_step"}
        assert b"Traceback" not in done.stderr


def test_a_read_only_root_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "e").write_text("a file where the folder should be")
    done = run(tmp_path, "settle")
    assert done.returncode == 7
    assert json.loads(done.stdout)["error"]["message"]


def test_the_agent_starts_without_numpy_and_without_the_runtime() -> None:
    script = (
        "import sys, edgectl_runner.agent\n"
        "heavy = {'numpy', 'iree', 'edgectl'}\n"
        "print([m for m in sys.modules if m.split('.')[0] in heavy])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_runner_is_python_3_11_and_imports_only_what_a_device_has() -> None:
    import ast

    allowed = {*sys.stdlib_module_names, "numpy", "iree", "ml_dtypes", "edgectl_runner"}
    for path in PACKAGE.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 11))
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] in allowed, f"{path.name} imports {name}"
