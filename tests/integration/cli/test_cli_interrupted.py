"""Ctrl-C at each stage: exit code 130, one line, a clean device, and the next try succeeds."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from support import small_models
from support.toxic_proxy import ToxicProxy, Toxics, silent_listener

MODELS = small_models.__file__


def _children(word: bytes, under: Path) -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if (
                    word in (entry / "cmdline").read_bytes()
                    and str(under).encode() in (entry / "environ").read_bytes()
                ):
                    return True
            except OSError:
                continue
    return False


def _ended_clean(ended):
    assert ended.exit_code == 130, ended
    assert ended.stderr.count("error: Interrupted.") == 1
    assert "Traceback" not in ended.stderr


def test_while_the_model_is_exported(board, tmp_path):
    started = tmp_path / "started"
    (tmp_path / "slow.py").write_text(
        "import pathlib, time, torch\n"
        "def model():\n"
        f"    pathlib.Path({str(started)!r}).touch()\n"
        "    time.sleep(60)\n"
        "    return torch.nn.ReLU(), (torch.ones(1),)\n"
    )
    out = tmp_path / "made.edgectl"
    _ended_clean(
        board.edgectl.interrupted(
            "compile", f"{tmp_path}/slow.py:model", "--trust-model", "-o", out, when=started.exists
        )
    )
    assert not out.exists()


def test_while_it_is_compiled(board, tmp_path):
    out = tmp_path / "made.edgectl"
    words = ["compile", f"{MODELS}:deep", "--target", "host", "-o", out]
    _ended_clean(
        board.edgectl.interrupted(*words, when=lambda: _children(b"iree-compile", tmp_path))
    )
    assert list(tmp_path.glob("*.edgectl*")) == []
    assert not _children(b"iree-compile", tmp_path), "the compiler must not go on alone"
    board.edgectl(*words).expect(0)


def test_while_it_connects(board, bundle):
    with silent_listener() as port:
        process = board.edgectl.start(
            "deploy", bundle, "--device", f"pi@127.0.0.1:{port}", "--ssh-timeout", "60"
        )
        time.sleep(2)  # from outside nothing shows that it waits for the banner
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "error: Interrupted." in err


@pytest.mark.parametrize("stage", ["the runner travels", "the bundle travels"])
def test_while_something_travels(board, bundle, stage):
    if stage == "the bundle travels":
        # The runner is there already; only the bundle is slow.
        board.edgectl("deploy", bundle, "--device", "board").expect(0)
    config = Path(board.edgectl.environment["HOME"]) / ".ssh" / "config"
    usual = config.read_text()
    # 20 kB/s: a bundle of 80 kB takes seconds, the runner of 30 MB forever.
    with ToxicProxy(board.sshd.port, Toxics(bytes_per_s=20_000)) as proxy:
        config.write_text(usual.replace(str(board.sshd.port), str(proxy.port)))
        line = board.sshd.known_line.replace(str(board.sshd.port), str(proxy.port))
        board.known(board.sshd.known_line + line)
        big = bundle
        if stage == "the bundle travels":
            big = bundle.with_name("deep.edgectl")
            board.edgectl("compile", f"{MODELS}:deep", "--target", "host", "-o", big).expect(0)
        _ended_clean(
            board.edgectl.interrupted(
                "deploy", big, "--device", "board", when=lambda: bool(board.leftovers)
            )
        )
    config.write_text(usual)
    assert board.leftovers == []
    board.edgectl("deploy", big, "--device", "board").expect(0)


def test_while_it_runs(board, bundle):
    words = ["deploy", bundle, "--device", "board"]
    board.edgectl(*words).expect(0)
    _ended_clean(
        board.edgectl.interrupted(
            *words, "--min-seconds", "120", when=lambda: bool(board.processes("run"))
        )
    )
    assert not board.processes("run"), "the run on the device must end with the host"
    assert " 0 bytes sent" in board.edgectl(*words).expect(0).stdout
