"""In a terminal the command asks, and nothing draws over the question."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest
import torch

from support import small_models


@pytest.fixture
def model(tmp_path):
    module, inputs = small_models.digits()
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(module, inputs), path)
    return path


def in_a_terminal(home, answer: str, *words: str) -> tuple[int, str]:
    """Exit code and all that was shown; ``answer`` is typed once the question stands still."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "edgectl.cli.main", *words],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "EDGECTL_HOME": str(home), "TERM": "xterm", "COLUMNS": "160"},
        start_new_session=True,
    )
    os.close(terminal)
    shown, asked = b"", False
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        ready, _, _ = select.select([controller], [], [], 1.0)
        if not ready:
            if process.poll() is not None:
                break
            if not asked and b"[y/N]" in shown:
                # A second without a movement: the spinner is still.
                asked = True
                os.write(controller, answer.encode() + b"\n")
            continue
        try:
            data = os.read(controller, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(controller)
    return process.wait(60), shown.decode(errors="replace")


def test_trust_is_asked_once_for_a_file(model, tmp_path):
    home, made = tmp_path / "home", tmp_path / "made.edgectl"
    words = ["compile", str(model), "-o", str(made)]
    code, shown = in_a_terminal(home, "y", *words)
    assert code == 0, shown
    question = shown[shown.index("Do you trust this file?") :]
    assert re.match(r"Do you trust this file\? \[y/N\]: y", question)
    assert made.exists()
    code, shown = in_a_terminal(home, "", *words)
    assert code == 0
    assert "Do you trust" not in shown


def test_no_is_no(model, tmp_path):
    made = tmp_path / "made.edgectl"
    code, shown = in_a_terminal(tmp_path / "home", "n", "compile", str(model), "-o", str(made))
    assert code == 3, shown
    assert "can run any code" in shown
    assert not made.exists()
