"""Input files to arrays: ``.npy`` and ``.npz`` by content."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgectl.errors import UsageError
from edgectl.sources.options import GivenInput

__all__ = ["read_inputs"]


def read_inputs(inputs: Sequence[Path | str | np.ndarray | GivenInput]) -> tuple[GivenInput, ...]:
    """Reads every file; arrays pass as they are.

    Raises:
        UsageError: a file is missing or holds no arrays.
    """
    given: list[GivenInput] = []
    for item in inputs:
        if isinstance(item, GivenInput):
            given.append(item)
        elif isinstance(item, np.ndarray):
            given.append(GivenInput(name=None, array=item))
        else:
            given += _read(Path(item))
    return tuple(given)


def _read(path: Path) -> list[GivenInput]:
    if not path.is_file():
        raise UsageError(f"There is no input file {path}.", next_step="Check the path with ls.")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return [GivenInput(name=None, array=loaded)]
        with loaded:
            return [GivenInput(name=name, array=loaded[name]) for name in loaded.files]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{path} holds no NumPy array: {error}",
            next_step="Save it with np.save(path, array).",
        ) from error
