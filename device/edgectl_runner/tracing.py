"""A trace of the board while a model runs: heat, clock, throttling, the work of others.

    with Tracer(interval_s=0.5) as tracer:
        tracer.start_clock()
        ...
    tracer.points

The looks are taken by `looking` in a process of its own. A look takes a few milliseconds of
another core, so it is taken twice a second and not oftener.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Self

from edgectl_runner.contract import TracePoint, from_document

__all__ = ["Tracer"]

_FIRST_LOOK_S, _LAST_LOOK_S = 15.0, 30.0
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from edgectl_runner.looking import main;"
    "main(float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])"
)


class Tracer:
    """Looks at the board at regular times; `points` has what was seen, once it has ended."""

    def __init__(self, *, interval_s: float, root: str = "/"):
        package = Path(__file__).resolve().parent.parent
        words = [_START, str(package), str(interval_s), str(os.getpid()), root]
        self._command = [sys.executable, "-S", "-E", "-c", *words]
        self._begin_ns = time.perf_counter_ns()
        self._points: tuple[TracePoint, ...] = ()

    def __enter__(self) -> Self:
        # A file and not a pipe: nobody reads while the model is timed, and a pipe would fill up.
        self._seen = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=self._seen, stderr=subprocess.DEVNULL
        )
        # Until it looks, starting it would disturb the model, and nobody would be looking.
        deadline = time.monotonic() + _FIRST_LOOK_S
        while not self.looks() and self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=_LAST_LOOK_S)  # its input ends: one last look
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with self._seen as file:
            file.seek(0)
            lines = file.read().decode("ascii", "replace").splitlines()
        self._points = tuple(self._point(line) for line in lines if line.endswith("}"))

    def start_clock(self) -> None:
        """Timing begins now; points taken before have a negative time."""
        self._begin_ns = time.perf_counter_ns()

    @property
    def points(self) -> tuple[TracePoint, ...]:
        """What was seen, in order."""
        return self._points

    def looks(self) -> bool:
        """Whether the first look was taken; starting to look takes a moment."""
        return os.fstat(self._seen.fileno()).st_size > 0

    def _point(self, line: str) -> TracePoint:
        # The clock is the system's monotonic one, so both processes read the same.
        document = json.loads(line)
        time_s = round((document.pop("at_ns") - self._begin_ns) / 1e9, 3)
        return from_document(TracePoint, {"time_s": time_s, **document})
