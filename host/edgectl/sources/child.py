"""Loads one model file in a process of its own: ``python child.py REQUEST_FOLDER``.

Started by `isolation` only. The folder holds ``request.json`` and ``inputs.bin``; the answer goes
to ``answer/`` in it: a model as plain data (`handback`), or ``error.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["main"]


def main(folder: Path) -> int:
    """Confines this process, then loads, exports and runs the model; 0 if it wrote a model."""
    request: dict[str, Any] = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    sys.path[:] = request["sys_path"]
    from edgectl.sources.confinement import Limits, confine

    # Read before the folder is the only thing that may be read.
    kept = confine(
        readable=[Path(path) for path in request["readable"]],
        writable=folder,
        limits=Limits(**request["limits"]),
    )
    answer = folder / "answer"
    answer.mkdir()
    from edgectl.errors import EdgectlError

    try:
        _load(request, folder, answer)
    except EdgectlError as error:
        _failed(answer, type(error).__name__, error.message, error.cause, error.next_step)
        return 1
    except MemoryError:
        _failed(answer, "MemoryError", "", None, None)
        return 1
    (answer / "missing.json").write_text(json.dumps({"missing": kept.missing}), encoding="utf-8")
    return 0


def _load(request: dict[str, Any], folder: Path, answer: Path) -> None:
    import warnings

    warnings.simplefilter("ignore")
    import torch

    from edgectl.errors import UsageError

    torch.set_num_threads(request["threads"])
    from edgectl.sources.kinds import all_kinds
    from edgectl.sources.options import options_from_document
    from edgectl.sources.source_file import open_source
    from edgectl.sources.tensor_file import read_tensors

    options = options_from_document(request["options"], read_tensors(folder / "inputs.bin"))
    kind = next(kind for kind in all_kinds() if kind.name == request["kind"])
    file = open_source(request["path"])
    if file.sha256 != request["digest"]:
        raise UsageError(
            f"{file.path} changed while it was being loaded.",
            cause="What was trusted are the bytes it held before.",
            next_step="Start again when nothing writes to it.",
        )
    loaded = kind.load(file, options)
    # Late, because these take seconds that a file which does not load need not cost.
    from edgectl.sources.assembling import assemble
    from edgectl.sources.handback import write_model
    from edgectl.sources.loaded import Loaded

    if not isinstance(loaded, Loaded):
        raise TypeError(f"{kind.name} needs no child process")
    write_model(assemble(loaded, options, kind=kind.name, digest=request["digest"]), answer)


def _failed(
    answer: Path, kind: str, message: str, cause: str | None, next_step: str | None
) -> None:
    (answer / "error.json").write_text(
        json.dumps({"kind": kind, "message": message, "cause": cause, "next_step": next_step}),
        encoding="utf-8",
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
