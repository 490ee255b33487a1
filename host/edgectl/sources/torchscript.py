"""``torch.jit.save``: traced or scripted modules, made an exported program again.

torch's own converter does it. Its limits, as far as they are known: a branch or loop becomes
``torch.cond`` or fails; attributes that change between calls are lost (`faithful` finds out);
names of Python modules are gone, so layers are named by their weights only.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import torch
from torch.export import ExportedProgram

from edgectl.errors import UnsupportedModelError
from edgectl.sources.exporting import export_program
from edgectl.sources.loaded import Arguments, Loaded
from edgectl.sources.options import LoadOptions
from edgectl.sources.source_file import SourceFile

__all__ = ["TorchScriptFile", "convert"]


class TorchScriptFile:
    """A TorchScript archive, whatever its file is called."""

    name = "torchscript"
    title = "a TorchScript archive"
    runs_code = True

    def detect(self, file: SourceFile) -> bool:
        """A ZIP with TorchScript's constants and code."""
        return "constants.pkl" in file.members and any(
            name.startswith("code/") for name in file.members
        )

    def load(self, file: SourceFile, options: LoadOptions) -> Loaded:
        """Loads on the CPU; conversion follows when the inputs are known."""
        del options
        try:
            module: torch.nn.Module = torch.jit.load(  # type: ignore[no-untyped-call]
                file.path, map_location="cpu"
            )
        except Exception as error:
            raise UnsupportedModelError(
                f"torch {torch.__version__} cannot load the TorchScript archive {file.path}: "
                f"{(str(error).strip().splitlines() or [''])[0][:300]}",
                cause="It was made by a newer torch, or uses operators of another package.",
                next_step="Export it again from its source: torch.export.save(...).",
            ) from error
        notes = ("converted from TorchScript: layers are named by their weights only",)
        return Loaded(name=file.path.stem, module=module, exporter=convert, notes=notes)


def convert(module: torch.nn.Module, arguments: Arguments, shapes: Any) -> ExportedProgram:
    """TorchScript to an exported program, for these arguments.

    Raises:
        UnsupportedModelError: torch's converter does not know something in it.
    """
    from torch._export.converter import TS2EPConverter

    if not isinstance(module, torch.jit.ScriptModule):
        raise TypeError(f"{type(module).__name__} is not TorchScript")
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            converter = TS2EPConverter(module, arguments.args, arguments.kwargs)
            program = converter.convert()
    except Exception as error:
        node = re.search(r"prim::\w+|aten::\w+", str(error))
        raise UnsupportedModelError(
            "This TorchScript cannot be converted"
            + (f": torch's converter has no rule for its {node[0]}." if node else "."),
            cause=(str(error).strip().splitlines() or [type(error).__name__])[0][:300],
            next_step="Export the model from its Python source instead (torch.export.save), or "
            "take its ONNX file or its weights with --arch.",
        ) from error
    # Once more, because the converter lets every dimension vary.
    return export_program(program.module(), arguments, dynamic_shapes=shapes)
