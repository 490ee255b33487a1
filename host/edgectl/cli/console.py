"""Where the command line speaks: results on stdout, everything else on stderr.

With ``--json`` stdout carries exactly one document, also on failure, and nothing moves on
stderr unless it is a terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edgectl.cli.documents import SCHEMA_VERSION, ErrorDetails, ErrorDocument
from edgectl.errors import EdgectlError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

__all__ = ["Output", "fail", "wants_json"]


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether ``--json`` was asked for; needed when parsing itself fails."""
    words = list(arguments)
    return "--json" in (words[: words.index("--")] if "--" in words else words)


class Output:
    """What a command reports with."""

    def __init__(self, *, as_json: bool, quiet: bool = False):
        self.as_json = as_json
        self.quiet = quiet
        self._status: Status | None = None

    @property
    def animated(self) -> bool:
        """Whether bars and spinners may move."""
        return not self.quiet and sys.stderr.isatty()

    def result(self, document: dict[str, Any], render: Callable[[Console], None]) -> None:
        """Prints the document (with ``--json``) or what ``render`` draws."""
        if self.as_json:
            print(json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2))  # noqa: T201
            return
        render(_console(stderr=False))

    def say(self, text: str) -> None:
        """One line for the person at the terminal."""
        if not self.quiet:
            _console(stderr=True).print(text, highlight=False, markup=False)

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Names a step while it runs, and how long it took when it is done."""
        import time

        started = time.monotonic()
        if self.animated:
            try:
                with _console(stderr=True).status(text) as self._status:
                    yield
            finally:
                self._status = None
        else:
            yield
        self.say(f"{text} ({time.monotonic() - started:.1f} s)")

    def _hide_spinner(self) -> None:
        """A bar takes the spinner's line; two that move draw over each other."""
        if self._status is not None:
            self._status.stop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing moves while a person is asked; a spinner would draw over the question."""
        status = self._status
        if status is not None:
            status.stop()
        try:
            yield
        finally:
            if status is not None:
                status.start()

    @contextmanager
    def count(self, text: str) -> Iterator[Callable[[str, int, int | None], None] | None]:
        """A bar fed with (what, steps done, steps in all); ``None`` where nothing may move."""
        if not self.animated:
            yield None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._hide_spinner()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=_console(stderr=True), transient=True) as bar:
            task = bar.add_task(text, total=None)
            yield lambda what, done, total: bar.update(
                task, description=f"{text}: {what}", completed=done, total=total
            )

    @contextmanager
    def transfer(self, text: str) -> Iterator[Callable[[int, int], None] | None]:
        """A progress bar fed with (bytes done, bytes in all); ``None`` where nothing may move."""
        if not self.animated:
            yield None
            return
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TransferSpeedColumn,
        )

        self._hide_spinner()
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
        with Progress(*columns, TransferSpeedColumn(), console=_console(stderr=True)) as bar:
            task = bar.add_task(text, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)


def fail(error: EdgectlError, *, as_json: bool) -> int:
    """Prints an error (what, why, what next) and returns its exit code."""
    if as_json:
        details = ErrorDetails(
            code=error.exit_code,
            kind=type(error).__name__.removeprefix("_"),
            message=error.message,
            cause=error.cause,
            next_step=error.next_step,
        )
        print(json.dumps(asdict(ErrorDocument(error=details)), indent=2))  # noqa: T201
        return error.exit_code
    lines = [f"error: {error.message}"]
    lines += [f"cause: {error.cause}"] if error.cause else []
    lines += [f"next:  {error.next_step}"] if error.next_step else []
    print("\n".join(lines), file=sys.stderr)  # noqa: T201
    return error.exit_code


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, soft_wrap=not (sys.stderr if stderr else sys.stdout).isatty())
