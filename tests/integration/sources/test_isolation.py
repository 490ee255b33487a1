"""Hostile model files: nothing runs without trust, and with it nothing gets out (benign canaries).

Rows J1 to J7 of the fault matrix.
"""

from __future__ import annotations

import io
import os
import pickle
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from edgectl.errors import EdgectlError, TrustRequiredError, UnsupportedModelError
from edgectl.sources import TrustPolicy, isolation, load
from edgectl.sources.landlock import abi_version

needs_landlock = pytest.mark.skipif(abi_version() == 0, reason="this kernel has no Landlock")


class Runs:
    """Pickles to something that runs ``code`` when it is unpickled."""

    def __init__(self, code: str):
        self.code = code

    def __reduce__(self) -> Any:
        return exec, (self.code, {})


def hostile(path: Path, code: str) -> Path:
    torch.save({"weights": Runs(code)}, path)
    return path


@pytest.fixture
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder beside the model's, as the user's home is."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "secret").write_text("s3cret")
    return folder


def trusted(tmp_path: Path) -> TrustPolicy:
    return TrustPolicy(trusted=True, state_dir=tmp_path / "state")


@pytest.mark.parametrize("kind", ["pickle", "program-inputs", "program-weight"])
def test_without_trust_nothing_runs(tmp_path: Path, secret: Path, kind: str) -> None:
    canary = secret / "canary"
    code = f"open({str(canary)!r}, 'w').write('ran')"
    path = tmp_path / "model.pt"
    if kind == "pickle":
        hostile(path, code)
    else:
        poisoned_program(path, code, weight=kind == "program-weight")
    with pytest.raises(TrustRequiredError):
        load(path, trust=TrustPolicy(state_dir=tmp_path / "state"))
    assert not canary.exists()


def poisoned_program(path: Path, code: str, *, weight: bool) -> None:
    """A .pt2 whose example inputs (or a weight) are a pickle that runs code."""
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)), path)
    data = path.read_bytes()
    poison = io.BytesIO()
    torch.save((Runs(code),), poison)
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            if not weight and "/sample_inputs/" in info.filename:
                content = poison.getvalue()
            if weight and info.filename.endswith("weights/weight_0"):
                content = poison.getvalue()
            if weight and info.filename.endswith("model_weights_config.json"):
                content = content.replace(b'"use_pickle": false', b'"use_pickle": true', 1)
            new.writestr(info.filename, content)


ATTEMPTS = """
import os, socket
def write(): open(SECRET + "/canary", "w").write("ran")
def read(): return open(SECRET + "/secret").read()
def look(): return os.listdir(SECRET)
def spy(): return open(f"/proc/{PID}/environ").read()
def kill(): os.kill(PID, 9)
def send(): socket.create_connection(("127.0.0.1", PORT), 3).send(b"out")
def shell():
    if os.system(f"echo ran > {SECRET}/canary") != 0: raise OSError
done = []
for attempt in (write, read, look, spy, kill, send, shell):
    try:
        attempt()
    except OSError:
        continue
    done.append(attempt.__name__)
raise SystemError(f"attempts that went through: {done}")
"""


@needs_landlock
def test_with_trust_files_network_and_processes_stay_out_of_reach(
    tmp_path: Path, secret: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        port = server.getsockname()[1]
        head = f"SECRET, PID, PORT = {str(secret)!r}, {os.getpid()}, {port}\n"
        path = hostile(tmp_path / "model.pt", head + ATTEMPTS)
        with pytest.raises(EdgectlError, match=r"attempts that went through: \[\]"):
            load(path, trust=trusted(tmp_path))
        with pytest.raises(TimeoutError):
            server.accept()
    assert not (secret / "canary").exists()


@needs_landlock
def test_a_poisoned_program_runs_confined(tmp_path: Path, secret: Path) -> None:
    path = tmp_path / "model.pt2"
    poisoned_program(path, f"open({str(secret / 'canary')!r}, 'w').write('ran')", weight=False)
    with pytest.raises(UnsupportedModelError):
        load(path, trust=trusted(tmp_path))
    assert not (secret / "canary").exists()


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("x = bytearray(1 << 45)", "limit of memory"),
        ("while True: pass", "limit of"),
        (
            "import os; f = open(os.environ['TMPDIR'] + '/x', 'wb')\nwhile 1: f.write(bytes(4096))",
            "File too large|limit of file size",
        ),
        ("import os; os._exit(7)", "status 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "status -11"),
    ],
)
def test_a_loader_that_eats_or_dies_leaves_the_parent_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, word: str
) -> None:
    monkeypatch.setattr(isolation, "_CPU_S", 10)
    monkeypatch.setattr(isolation, "_GIB", 1 << 28)
    path = hostile(tmp_path / "model.pt", code)
    with pytest.raises(UnsupportedModelError, match=word) as caught:
        load(path, trust=trusted(tmp_path))
    assert caught.value.exit_code == 4
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("program", "word"),
    [
        ("open(p, 'wb').write(pickle.dumps(1))", "not a plain program"),
        ("os.symlink('/etc/passwd', p)", "not a plain program"),
        ("os.mkfifo(p)", "no regular file"),
    ],
)
def test_what_the_child_leaves_is_not_believed(tmp_path: Path, program: str, word: str) -> None:
    """Code in the model writes the answer itself: a pickle, a link, a pipe without an end."""
    code = (
        "import os, pickle\n"
        "p = os.path.join(os.path.dirname(os.environ['TMPDIR']), 'answer', 'record.json')\n"
        f"{program}\n"
        "os._exit(0)\n"
    )
    with pytest.raises(UnsupportedModelError, match=word):
        load(hostile(tmp_path / "model.pt", code), trust=trusted(tmp_path))


def test_a_loader_that_never_ends_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_DEADLINE_S", 8)
    path = hostile(tmp_path / "model.pt", "import time; time.sleep(600)")
    with pytest.raises(UnsupportedModelError, match="limit of time"):
        load(path, trust=trusted(tmp_path))


def test_nothing_of_the_child_stays_behind(tmp_path: Path) -> None:
    """A grandchild that detaches itself ends with the loading."""
    marker = f"edgectl-canary-{os.getpid()}"
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        f"    os.execvp('sleep', ['sleep', '300', '{marker}'][:2])\n"
        "time.sleep(0.5)\n"
    )
    before = sleepers()
    with pytest.raises(EdgectlError):
        load(hostile(tmp_path / "model.pt", code), trust=trusted(tmp_path))
    assert sleepers() <= before


def sleepers() -> set[str]:
    found = set()
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if process.read_bytes() == b"sleep\x00300\x00":
                found.add(process.parent.name)
        except OSError:
            continue
    return found


ORDINARY_USER = """
import os, socket, sys
from pathlib import Path
from edgectl.sources import confinement
real, asked = os.geteuid, []
os.geteuid = lambda: real() if asked else asked.append(1) or 1000
kept = confinement.confine(
    readable=[],
    writable=Path(sys.argv[1]),
    limits=confinement.Limits(memory_bytes=1 << 33, cpu_s=60, file_bytes=1 << 20),
)
os.geteuid = real
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[2])), 3)
except OSError:
    print(kept.missing)
"""


def test_a_user_without_privileges_is_confined_too(tmp_path: Path) -> None:
    """The way through a user namespace, which root does not need to take."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-c", ORDINARY_USER, str(tmp_path), port],
            capture_output=True,
            text=True,
            check=False,
            env=isolation._environment(tmp_path),
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "the connection went through"
    if "network" in done.stdout:
        pytest.skip("this system gives ordinary users no namespaces, and the note says so")


def test_pickle_is_what_these_tests_think_it_is() -> None:
    """The canary does run where nothing stops it."""
    ran: list[int] = []
    pickle.loads(pickle.dumps(Runs("import os; os.environ['EDGECTL_CANARY'] = '1'")))
    assert os.environ.pop("EDGECTL_CANARY") == "1"
    assert ran == []
