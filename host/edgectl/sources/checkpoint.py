"""A dict by ``torch.save`` with more in it than tensors: objects of the training program."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from edgectl.sources.loaded import Loaded
from edgectl.sources.options import LoadOptions
from edgectl.sources.pickle_globals import pickle_names
from edgectl.sources.pickled_module import unpickled
from edgectl.sources.source_file import SourceFile
from edgectl.sources.weights import load_weights

__all__ = ["CheckpointFile"]


class CheckpointFile:
    """A checkpoint that names classes, so that reading it can run their code."""

    name = "checkpoint"
    title = "a training checkpoint with objects in it"
    runs_code = True

    def detect(self, file: SourceFile) -> bool:
        """A pickle whose outermost object is a dict and that names other things than tensors."""
        if "constants.pkl" in file.members:
            return False
        names = pickle_names(file)
        return names is not None and names.dictionary and bool(names.foreign)

    def load(self, file: SourceFile, options: LoadOptions) -> Loaded:
        """The only module in it, or its weights in the architecture."""
        value = unpickled(file)
        if isinstance(value, Mapping) and options.architecture is None:
            modules = {k: v for k, v in value.items() if isinstance(v, torch.nn.Module)}
            key = options.state_key or (next(iter(modules)) if len(modules) == 1 else "")
            if key in modules:
                note = f"module taken from {key!r} of the checkpoint"
                return Loaded(name=file.path.stem, module=modules[key], notes=(note,))
        return load_weights(file, value, options)
