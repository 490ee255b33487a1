"""The kinds of model source, in the order in which they are tried.

Adding a kind is one file with a `SourceKind` in it and one line in `all_kinds`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from edgectl.sources.options import LoadOptions
from edgectl.sources.source_file import SourceFile

if TYPE_CHECKING:
    from edgectl.records import ExportedModel
    from edgectl.sources.loaded import Loaded

__all__ = ["SourceKind", "all_kinds"]


class SourceKind(Protocol):
    """How one kind of file is recognised and loaded.

    ``name`` is the word for it in records, ``title`` the one in messages ("a pickled module").
    ``runs_code`` says that loading it can run code that the file holds.
    """

    name: str
    title: str
    runs_code: bool

    def detect(self, file: SourceFile) -> bool:
        """Whether the content is of this kind; reads no more than it must, and runs nothing."""
        ...

    def load(self, file: SourceFile, options: LoadOptions) -> Loaded | ExportedModel:
        """Makes a module or a program of the file; a whole record where it is not PyTorch's."""
        ...


def all_kinds() -> tuple[SourceKind, ...]:
    """Every kind there is; the first that recognises a file has it."""
    from edgectl.sources.checkpoint import CheckpointFile
    from edgectl.sources.exported_program import ExportedProgramFile
    from edgectl.sources.onnx_file import OnnxFile
    from edgectl.sources.pickled_module import PickledModuleFile
    from edgectl.sources.tflite import TfliteFile
    from edgectl.sources.torchscript import TorchScriptFile
    from edgectl.sources.tosa import TosaFlatbufferFile, TosaMlirFile
    from edgectl.sources.weights import SafetensorsFile, StateDictFile

    return (
        ExportedProgramFile(),
        TorchScriptFile(),
        SafetensorsFile(),
        StateDictFile(),
        CheckpointFile(),
        PickledModuleFile(),
        OnnxFile(),
        TfliteFile(),
        TosaFlatbufferFile(),
        TosaMlirFile(),
    )
