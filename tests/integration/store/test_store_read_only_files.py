"""A release's files are read-only; a user who is not root must be able to run them all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_bundles import AFFINE, compile_mlir

LOAD = """
import json, mmap, os, sys
from pathlib import Path
from edgectl_runner.binding import native_runtime
from edgectl_runner.contract import EntryPoint
from edgectl_runner.engine import Engine
native_runtime()  # while this Python's own files can still be read
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
entry = EntryPoint(function="main", inputs=(), outputs=())
Engine.load(Path(sys.argv[1]), entry, threads=1).close()
print(json.dumps({"loaded": os.geteuid()}))
"""


@pytest.fixture
def module() -> Any:
    folder = Path(f"/tmp/edgectl-read-only-{os.getpid()}")  # where everybody may look
    folder.mkdir(mode=0o755)
    path = folder / "module.vmfb"
    path.write_bytes(compile_mlir(AFFINE))
    path.chmod(0o444)
    yield path
    path.unlink()
    folder.rmdir()


def test_a_module_is_loaded_without_the_right_to_write_it(module: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOAD, module], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["loaded"] != 0
