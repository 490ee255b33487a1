"""Runs the loading of a trusted file in a confined child process and takes only data back.

Trust is the user's word that the file may run code; it is not proof that the code is kind. So
even a trusted file is loaded without network, with a private home and temporary folder, limits
on memory, processor time and file size, and sight of nothing but the Python environment, the
source folder and the file itself. What this does not stop: a flaw in the kernel, reading what is
readable there (installed packages, this folder), using processor and memory up to the limits,
and a model that simply computes something else than it claims.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgectl import errors
from edgectl.errors import EdgectlError, UnsupportedModelError
from edgectl.sources.kinds import SourceKind
from edgectl.sources.options import LoadOptions, options_to_document
from edgectl.sources.source_file import SourceFile
from edgectl.sources.tensor_file import write_tensors
from edgectl.sources.untrusted_files import read_regular

if TYPE_CHECKING:
    from edgectl.records import ExportedModel

__all__ = ["load_isolated"]

_GIB = 1 << 30
_CPU_S = 900
_DEADLINE_S = 1200
_WORDS_KEPT = 4000


def load_isolated(file: SourceFile, kind: SourceKind, options: LoadOptions) -> ExportedModel:
    """Loads ``file`` as ``kind`` in a child.

    Raises:
        EdgectlError: what the child raised; or `UnsupportedModelError` if it died or passed its
            limits.
    """
    from edgectl.sources.handback import read_model

    with tempfile.TemporaryDirectory(prefix="edgectl-load-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        _prepare(folder, file, kind, options)
        status, words = _run(folder)
        status = 128 - status if 128 < status < 192 else status
        answer = folder / "answer"
        if status != 0:
            raise _failure(file, status, answer, words)
        model = read_model(answer, digest=file.sha256)
        missing = _told(answer / "missing.json").get("missing")
    if not missing or not isinstance(missing, list):
        return model
    import dataclasses

    note = "loaded in a child process, but " + "; ".join(str(item)[:120] for item in missing[:4])
    return dataclasses.replace(model, notes=(*model.notes, note))


def _prepare(folder: Path, file: SourceFile, kind: SourceKind, options: LoadOptions) -> None:
    for private in ("home", "tmp"):
        (folder / private).mkdir(mode=0o700)
    document, arrays = options_to_document(options)
    write_tensors(folder / "inputs.bin", arrays)
    paths = _import_paths()
    request = {
        "path": str(file.path.resolve()),
        "kind": kind.name,
        "digest": file.sha256,
        "options": document,
        "sys_path": paths,
        "readable": [*_readable(paths), str(file.path.resolve())],
        "limits": _limits(file.size),
        "threads": os.cpu_count() or 1,
    }
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")


def _run(folder: Path) -> tuple[int, str]:
    """The child's exit status and its last words."""
    # Read through the descriptor it was written through: the child may put anything else there.
    with (folder / "log.txt").open("w+b") as words:
        child = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).with_name("child.py")), str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            cwd=folder,
            env=_environment(folder),
            start_new_session=True,
            close_fds=True,
        )
        try:
            status = child.wait(timeout=_DEADLINE_S)
        except subprocess.TimeoutExpired:
            status = -signal.SIGKILL
        finally:
            # Ctrl-C and the deadline alike: nothing of it stays behind.
            _kill_group(child)
        size = words.seek(0, os.SEEK_END)
        words.seek(max(0, size - _WORDS_KEPT))
        return status, words.read().decode("utf-8", "replace")


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        child.wait()


def _environment(folder: Path) -> dict[str, str]:
    kept = {
        name: os.environ[name]
        for name in ("PATH", "LANG", "LC_ALL", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        if name in os.environ
    }
    return kept | {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
        # NumPy's threads would start with its import, and a process with threads can enter no
        # user namespace.
        "OPENBLAS_NUM_THREADS": "1",
        # Model hubs would only wait for a network that is not there.
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }


def _import_paths() -> list[str]:
    """Where Python looks for modules here, and the folder that the user stands in."""
    paths = [str(Path(path or ".").resolve()) for path in sys.path]
    here = str(Path.cwd())
    return [*paths, *([here] if here not in paths else [])]


def _readable(paths: list[str]) -> list[str]:
    """Import paths that do not give away a whole home folder."""
    home = Path.home().resolve()
    wide = {home, *home.parents}
    kept = [path for path in paths if Path(path) not in wide]
    environment = [sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(sys.executable).parent)]
    package = str(Path(errors.__file__).resolve().parents[1])
    runner = _runner_folder()
    return [*dict.fromkeys([*kept, *environment, package, runner])]


def _runner_folder() -> str:
    from edgectl_runner import contract

    return str(Path(contract.__file__).resolve().parents[1])


def _limits(size: int) -> dict[str, int]:
    """Room for torch, for eight copies of the file, and never more than this computer has."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = min(8 * _GIB + 8 * size, max(4 * _GIB, physical * 9 // 10))
    return {"memory_bytes": memory, "cpu_s": _CPU_S, "file_bytes": _GIB + 4 * size}


def _failure(file: SourceFile, status: int, answer: Path, words: str) -> EdgectlError:
    told = _told(answer / "error.json")
    kind = getattr(errors, str(told.get("kind")), None)
    if isinstance(kind, type) and issubclass(kind, EdgectlError):
        message, cause, next_step = (told.get(k) for k in ("message", "cause", "next_step"))
        return kind(
            str(message)[:2000],
            cause=str(cause)[:1000] if cause else None,
            next_step=str(next_step)[:1000] if next_step else None,
        )
    limit = "memory" if told.get("kind") == "MemoryError" or "MemoryError" in words else None
    if "bad_alloc" in words or "can't allocate memory" in words:
        limit = "memory"
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        limit = "processor time" if status == -signal.SIGXCPU else "time or memory"
    if status == -signal.SIGXFSZ or "File too large" in words:
        limit = "file size"
    if limit:
        return UnsupportedModelError(
            f"Loading {file.path} was stopped: it passed its limit of {limit}.",
            cause=f"The file has {file.size} bytes; loading it needs far more than that explains.",
            next_step="If you made it, name a Python factory (file.py:function) instead.",
        )
    last = [line for line in words.splitlines() if line.strip()][-1:] or ["it said nothing"]
    return UnsupportedModelError(
        f"Loading {file.path} failed in its process (status {status}): {last[0][:300]}",
        cause="The code in the file wants something that loading a model is not given: files, "
        "network, or other processes.",
        next_step="If you made it, name a Python factory (file.py:function) instead.",
    )


def _told(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_regular(path, 1 << 20))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
