"""`load`: one source, told apart by its content, to an `ExportedModel`."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgectl.sources.archive_limits import check_archive
from edgectl.sources.foreign import not_a_model
from edgectl.sources.images import ImageOptions
from edgectl.sources.input_specs import parse_dynamic, parse_input_specs
from edgectl.sources.inputs import read_inputs
from edgectl.sources.kinds import SourceKind, all_kinds
from edgectl.sources.loaded import Loaded
from edgectl.sources.options import GivenInput, LoadOptions
from edgectl.sources.source_file import SourceFile, open_source
from edgectl.sources.trust import TrustPolicy

if TYPE_CHECKING:
    from edgectl.records import ExportedModel

__all__ = ["detect", "is_bundle", "load"]


def load(
    source: str | Path,
    *,
    input_specs: Sequence[str] = (),
    inputs: Sequence[Path | str | np.ndarray | GivenInput] = (),
    dynamic: Sequence[str] = (),
    trust: TrustPolicy | None = None,
    architecture: str | None = None,
    state_key: str | None = None,
    keep_half: bool = False,
    images: ImageOptions | None = None,
    tokenizer: str | None = None,
    seed: int = 0,
) -> ExportedModel:
    """Loads and exports a model file or a Python factory.

    ``input_specs`` and ``dynamic`` are texts as on the command line (`input_specs`).
    ``architecture`` names the factory for a file that holds only weights, ``state_key`` the entry
    of a checkpoint that holds them. ``images`` and ``tokenizer`` say how pictures and text among
    ``inputs`` become tensors. ``keep_half`` leaves half-precision weights as they are.

    Raises:
        UsageError: the file or the inputs are not what was asked for.
        TrustRequiredError: loading it can run code, and nobody said that it may.
        UnsupportedModelError: the model cannot be exported.
    """
    from edgectl.sources.assembling import assemble
    from edgectl.sources.factory import call_factory, is_factory

    options = LoadOptions(
        input_specs=parse_input_specs(input_specs),
        inputs=read_inputs(inputs, images=images, tokenizer=tokenizer),
        dynamic=tuple(parse_dynamic(text) for text in dynamic),
        architecture=architecture,
        state_key=state_key,
        keep_half=keep_half,
        seed=seed,
    )
    if is_factory(str(source)):
        return assemble(call_factory(str(source)), options, kind="factory", digest=None)
    file = open_source(source)
    kind = detect(file)
    if kind.runs_code:
        from edgectl.sources.isolation import load_isolated

        (trust or TrustPolicy()).require(file.path, file.sha256, kind.title)
        return load_isolated(file, kind, options)
    loaded = kind.load(file, options)
    if not isinstance(loaded, Loaded):
        return loaded
    return assemble(loaded, options, kind=kind.name, digest=file.sha256)


def detect(file: SourceFile) -> SourceKind:
    """The kind of a file, by its content.

    Raises:
        UsageError: it is of no kind that edgectl reads.
    """
    check_archive(file)
    for kind in all_kinds():
        if kind.detect(file):
            return kind
    raise not_a_model(file)


def is_bundle(path: str | Path) -> bool:
    """Whether a file is a bundle made by ``edgectl compile``."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {"manifest.json", "module.vmfb"} <= set(archive.namelist())
    except (OSError, zipfile.BadZipFile, ValueError):
        return False
