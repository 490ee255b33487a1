"""The real command, as a person or a script runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# A busy machine may take minutes where an idle one takes seconds; no test waits this long unless
# something hangs.
_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What a command left behind."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        document: dict[str, Any] = json.loads(self.stdout)
        return document

    def expect(self, exit_code: int) -> Ended:
        """Itself, if it ended so."""
        shown = f"exit code {self.exit_code}\n{self.stdout[-3000:]}\n{self.stderr[-3000:]}"
        assert self.exit_code == exit_code, shown
        assert "Traceback" not in self.stderr, self.stderr[-3000:]
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Edgectl:
    """``edgectl`` with a home of its own."""

    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *words: str | Path, timeout_s: float = _TIMEOUT_S) -> Ended:
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return Ended(exit_code=process.returncode, stdout=out, stderr=err)

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        """Starts it, in a process group of its own as a shell would."""
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("EDGECTL_")},
            "EDGECTL_HOME": str(self.home),
            "COLUMNS": "160",
            **self.environment,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "edgectl.cli.main", *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def interrupted(self, *words: str | Path, when: Callable[[], bool]) -> Ended:
        """Runs it and presses Ctrl-C as soon as ``when`` holds."""
        process = self.start(*words)
        deadline = time.monotonic() + _TIMEOUT_S
        while not when():
            if process.poll() is not None:
                out, err = process.communicate()
                raise AssertionError(f"it ended before it could be interrupted:\n{out}\n{err}")
            if time.monotonic() > deadline:
                process.kill()
                raise AssertionError("the moment to interrupt never came")
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        return Ended(exit_code=process.returncode, stdout=out, stderr=err)
