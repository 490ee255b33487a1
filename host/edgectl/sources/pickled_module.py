"""``torch.save(module)``: a whole ``nn.Module`` as a pickle."""

from __future__ import annotations

import torch

from edgectl.errors import UnsupportedModelError, UsageError
from edgectl.sources.loaded import Loaded
from edgectl.sources.options import LoadOptions
from edgectl.sources.source_file import SourceFile

__all__ = ["PickledModuleFile"]

_LEGACY_MAGIC = b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"


class PickledModuleFile:
    """A pickle that names classes; its classes must be importable here."""

    name = "pickled-module"
    title = "a pickled nn.Module"
    runs_code = True

    def detect(self, file: SourceFile) -> bool:
        """A ZIP with ``data.pkl`` and no TorchScript in it, or the format before torch 1.6."""
        if file.is_zip:
            return "data.pkl" in file.members and "constants.pkl" not in file.members
        return _LEGACY_MAGIC in file.head[:32]

    def load(self, file: SourceFile, options: LoadOptions) -> Loaded:
        """Unpickles on the CPU, wherever it was saved."""
        del options
        try:
            value = torch.load(file.path, map_location="cpu", weights_only=False)
        except (ModuleNotFoundError, AttributeError) as error:
            raise UsageError(
                f"{file.path} needs a class that is not here: {error}.",
                cause="A pickled module holds only the names of its classes, not their code.",
                next_step="Start edgectl in the folder of the model's source, or name a Python "
                "factory as file.py:function.",
            ) from error
        except Exception as error:
            raise UnsupportedModelError(
                f"{file.path} cannot be unpickled: {str(error).splitlines()[0][:200]}",
                next_step="Save it again as an exported program: "
                "torch.export.save(torch.export.export(model, inputs), 'model.pt2').",
            ) from error
        if not isinstance(value, torch.nn.Module):
            kind = type(value).__name__
            raise UsageError(
                f"{file.path} holds a {kind}, not an nn.Module.",
                next_step="Save the module itself, or name a Python factory as file.py:function.",
            )
        return Loaded(name=file.path.stem, module=value)
