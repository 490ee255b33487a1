"""Runs a function in a child process and turns its death into a sentence.

The child is forked, not started anew: that costs no second start of Python on a slow board, and
the parent has loaded neither NumPy nor the runtime, so nothing with threads is forked.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any

from edgectl_runner.failures import DEVICE, INTERNAL, RunnerError
from edgectl_runner.processor import missing_features

__all__ = ["run_isolated"]


def run_isolated(
    function: Callable[[Callable[[], None]], dict[str, Any]],
    *,
    features: Iterable[str] = (),
    processor: str = "",
    silence_s: float | None = None,
    watch_stdout: bool = True,
) -> dict[str, Any]:
    """What ``function`` returned (JSON types only) in a child process.

    Args:
        function: runs with standard output sent to standard error; is given a function to call
            as a sign of life.
        features: of the module it runs, to explain an illegal instruction.
        processor: that the module was compiled for, for the same.
        silence_s: the child is killed after so long without a sign of life.
        watch_stdout: also end the child when nobody reads our standard output any more (the
            connection to the host broke), so that no orphan keeps the board busy.

    Raises:
        RunnerError: raised by the function, or the child crashed, or took too long.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(function, writing)
    os.close(writing)
    try:
        answer, why = _collect(reading, silence_s, watch_stdout)
        if why is not None:
            os.kill(child, signal.SIGKILL)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    finally:
        os.close(reading)
    _, status = os.waitpid(child, 0)
    if why is not None:
        raise RunnerError(why, cause="the model hangs or is far slower than expected")
    if os.WIFSIGNALED(status):
        raise _crash(os.WTERMSIG(status), tuple(features), processor)
    try:
        document: dict[str, Any] = json.loads(answer)
    except ValueError as error:
        raise RunnerError("the model's process ended without a result", code=INTERNAL) from error
    if "error" in document:
        e = document["error"]
        raise RunnerError(
            e["message"],
            code=e["code"],
            cause=e["cause"],
            next_step=e["next_step"],
            details=e.get("details"),
        )
    result: dict[str, Any] = document["result"]
    return result


def _child(function: Callable[[Callable[[], None]], dict[str, Any]], writing: int) -> None:
    code = 0
    try:
        # Native code that prints must not spoil the one document on standard output.
        os.dup2(2, 1)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            # White space before a JSON document changes nothing in it.
            document = {"result": function(lambda: _beat(writing))}
        except RunnerError as error:
            document = error.to_document()
        except MemoryError:
            document = RunnerError("out of memory while running the model").to_document()
        except Exception as error:  # noqa: BLE001 - the parent reports it
            _print_traceback()
            document = RunnerError(
                f"the runner failed: {type(error).__name__}: {error}", code=INTERNAL
            ).to_document()
        data = json.dumps(document).encode()
        while data:
            data = data[os.write(writing, data) :]
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - nothing may run in the parent's name after a fork
        code = 1
    finally:
        os._exit(code)


def _beat(writing: int) -> None:
    os.write(writing, b" ")


def _collect(reading: int, silence_s: float | None, watch_stdout: bool) -> tuple[bytes, str | None]:
    poller = select.poll()
    poller.register(reading, select.POLLIN)
    if watch_stdout:
        poller.register(1, 0)
    answer = b""
    while True:
        events = poller.poll(None if silence_s is None else silence_s * 1000)
        if not events:
            return b"", f"the model gave no answer within {silence_s:g} s"
        for descriptor, event in events:
            if descriptor == 1 and event & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
                return b"", "the connection to the host was lost"
            if descriptor == reading:
                data = os.read(reading, 1 << 16)
                if not data:
                    return answer, None
                answer += data


def _crash(number: int, features: tuple[str, ...], processor: str) -> RunnerError:
    name = signal.Signals(number).name
    if number == signal.SIGILL:
        missing = ", ".join(missing_features(features))
        return RunnerError(
            f"binary needs {missing or 'an instruction'} that this device lacks "
            f"(illegal instruction; compiled for {processor or 'an unnamed processor'})",
            code=DEVICE,
            cause="the model or the runtime was built for a newer processor core",
            next_step="compile it again with --target naming this board",
        )
    if number == signal.SIGKILL:
        return RunnerError(
            "the model's process was killed while it ran",
            code=DEVICE,
            cause="most likely the device ran out of memory",
            next_step="close other programs on the device, or use a smaller model",
        )
    return RunnerError(
        f"the model's process crashed with {name}",
        code=DEVICE,
        cause="a fault in compiled code, or in the IREE runtime",
        next_step="compile it again; if it happens again, please report it with the bundle",
    )


def _print_traceback() -> None:
    import traceback  # not needed when all goes well, and slow to import on a small board

    traceback.print_exc()
