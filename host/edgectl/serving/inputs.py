"""Files to the arrays that a served model takes, by what the service says about its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgectl.errors import UsageError
from edgectl.serving.client import DATATYPES

if TYPE_CHECKING:
    import numpy as np

    from edgectl.sources import ImageOptions

__all__ = ["inputs_for", "zeros_for"]

_NAMES = {datatype: name for name, datatype in DATATYPES.items()}


def inputs_for(
    specs: Sequence[Mapping[str, Any]], files: Sequence[str], *, images: ImageOptions
) -> dict[str, np.ndarray]:
    """Arrays by input name; files are ``[NAME=]FILE``, in order where they have no name.

    Args:
        specs: the inputs of the service's metadata.
        files: as on the command line.
        images: how pictures become tensors.

    Raises:
        UsageError: a file is no input, or there are too few or too many.
    """
    from edgectl.sources import read_inputs

    given = read_inputs(files, images=images)
    by_name = {str(spec["name"]): spec for spec in specs}
    unnamed = [name for name in by_name if name not in {g.name for g in given}]
    found: dict[str, np.ndarray] = {}
    for item in given:
        name = item.name if item.name is not None else (unnamed.pop(0) if unnamed else None)
        if name not in by_name or name in found:
            raise UsageError(
                f"the model takes {len(by_name)} inputs ({', '.join(by_name) or 'none'}); "
                f"{'an input too many' if name is None else f'{name!r} is none of them'} was given"
            )
        spec = by_name[name]
        shape = tuple(None if size < 0 else int(size) for size in spec["shape"])
        found[name] = item.fitted(shape, _NAMES[spec["datatype"]])
    missing = [name for name in by_name if name not in found]
    if missing:
        raise UsageError(
            f"inputs are missing: {', '.join(missing)}", next_step="Add --input NAME=FILE."
        )
    return found


def zeros_for(specs: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Zeros of the shapes and types that the service tells; dimensions that vary are 1."""
    import numpy as np

    arrays = {}
    for spec in specs:
        name = _NAMES[spec["datatype"]]
        if name == "bfloat16":
            raise UsageError(
                f"input {spec['name']!r} is bfloat16", next_step="Give it with --input FILE."
            )
        arrays[str(spec["name"])] = np.zeros([1 if n < 0 else n for n in spec["shape"]], name)
    return arrays
