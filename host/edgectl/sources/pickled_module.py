"""``torch.save(module)``: a whole ``nn.Module`` as a pickle."""

from __future__ import annotations

from typing import Any

import torch

from edgectl.errors import UnsupportedModelError, UsageError
from edgectl.sources.loaded import Loaded
from edgectl.sources.options import LoadOptions
from edgectl.sources.pickle_globals import pickle_names
from edgectl.sources.source_file import SourceFile

__all__ = ["PickledModuleFile", "unpickled"]


class PickledModuleFile:
    """A pickle that names classes; its classes must be importable here."""

    name = "pickled-module"
    title = "a pickled nn.Module"
    runs_code = True

    def detect(self, file: SourceFile) -> bool:
        """Any other pickle of ``torch.save``, in the format before torch 1.6 too."""
        return pickle_names(file) is not None and "constants.pkl" not in file.members

    def load(self, file: SourceFile, options: LoadOptions) -> Loaded:
        """Unpickles on the CPU, wherever it was saved."""
        del options
        value = unpickled(file)
        if not isinstance(value, torch.nn.Module):
            kind = type(value).__name__
            raise UsageError(
                f"{file.path} holds a {kind}, not an nn.Module.",
                next_step="Save the module itself, or name a Python factory as file.py:function.",
            )
        return Loaded(name=file.path.stem, module=value)


def unpickled(file: SourceFile) -> Any:
    """Whatever the pickle makes, on the CPU.

    Raises:
        UsageError: a class of it cannot be imported here.
        UnsupportedModelError: it cannot be unpickled.
    """
    try:
        return torch.load(file.path, map_location="cpu", weights_only=False)
    except (ModuleNotFoundError, AttributeError) as error:
        raise UsageError(
            f"{file.path} needs a class that is not here: {error}.",
            cause="A pickled module holds only the names of its classes, not their code.",
            next_step="Start edgectl in the folder of the model's source, or name a Python "
            "factory as file.py:function.",
        ) from error
    except MemoryError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        denied = isinstance(error, OSError)
        raise UnsupportedModelError(
            f"{file.path} cannot be unpickled: {reason}",
            cause="The code in the file reaches for files, network or processes, and loading a "
            "model gives it none."
            if denied
            else f"It is damaged, or was saved by a newer torch than {torch.__version__}.",
            next_step="Save it again as an exported program: "
            "torch.export.save(torch.export.export(model, inputs), 'model.pt2').",
        ) from error
