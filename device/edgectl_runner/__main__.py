"""``python3 -m edgectl_runner VERB``: one JSON document in, exactly one out, log on stderr."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from edgectl_runner.failures import DEVICE, INTERNAL, USAGE, RunnerError

if TYPE_CHECKING:
    from edgectl_runner.store import Store

__all__ = ["main"]

Verbs = Mapping[str, "Callable[[Store, dict[str, Any]], dict[str, Any]]"]

MAX_REQUEST_BYTES = 64 << 20

_DISK_ERRORS = {
    errno.ENOSPC: ("the device's disk is full", "free some space, or run 'edgectl gc'"),
    errno.EDQUOT: ("the device's disk quota is used up", "free some space, or run 'edgectl gc'"),
    errno.EROFS: (
        "the device's file system is read-only",
        "turn off the overlay file system, or set EDGECTL_ROOT to a writable folder",
    ),
    errno.EIO: ("the device's disk reports errors", "check the SD card, it may be failing"),
    errno.EACCES: ("the device refuses to write there", "check who owns the folder"),
}


def main(arguments: list[str], verbs: Verbs | None = None) -> int:
    """Runs one verb (of the agent's, or of others) and returns its exit code."""
    # Whatever prints by accident must not end up inside the document.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    try:
        document, code = _answer(arguments, verbs), 0
    except RunnerError as error:
        document, code = error.to_document(), error.code
    except OSError as error:
        failure = _disk_error(error)
        document, code = failure.to_document(), failure.code
    except KeyboardInterrupt:
        document, code = RunnerError("interrupted", code=130).to_document(), 130
    except Exception as error:  # noqa: BLE001 - the host needs a document whatever happened
        _print_traceback()
        failure = RunnerError(f"{type(error).__name__}: {error}", code=INTERNAL)
        document, code = failure.to_document(), failure.code
    with out:
        out.write(json.dumps(document, allow_nan=False) + "\n")
    return code


def _answer(arguments: list[str], verbs: Verbs | None) -> dict[str, Any]:
    from edgectl_runner.store import Store, default_root

    if verbs is None:
        from edgectl_runner.agent import VERBS

        verbs = VERBS
    if len(arguments) != 1 or arguments[0] not in verbs:
        raise RunnerError(
            f"usage: python3 -m edgectl_runner VERB, with VERB one of {', '.join(verbs)}",
            code=USAGE,
        )
    request = _read_request()
    return verbs[arguments[0]](Store(default_root(os.environ)), request)


def _read_request() -> dict[str, Any]:
    data = sys.stdin.buffer.read(MAX_REQUEST_BYTES + 1)
    if len(data) > MAX_REQUEST_BYTES:
        raise RunnerError("the request is too long", code=USAGE)
    try:
        request = json.loads(data or b"{}")
    except (ValueError, RecursionError) as error:
        raise RunnerError(f"the request is not JSON: {error}", code=USAGE) from error
    if not isinstance(request, dict):
        raise RunnerError("the request is not a JSON object", code=USAGE)
    return request


def _disk_error(error: OSError) -> RunnerError:
    if error.errno in _DISK_ERRORS:
        message, next_step = _DISK_ERRORS[error.errno]
        where = f" ({error.filename})" if error.filename else ""
        return RunnerError(f"{message}{where}", code=DEVICE, next_step=next_step)
    _print_traceback()
    return RunnerError(f"the device failed: {error}", code=DEVICE)


def _print_traceback() -> None:
    import traceback  # not needed when all goes well, and slow to import on a small board

    traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
