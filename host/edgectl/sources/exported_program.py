"""``torch.export.save``'s archive (``.pt2``, and ``.pt`` by habit)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import torch

from edgectl.errors import UnsupportedModelError
from edgectl.sources.loaded import Arguments, Loaded
from edgectl.sources.operator_libraries import register_operators
from edgectl.sources.options import LoadOptions
from edgectl.sources.source_file import SourceFile

__all__ = ["ExportedProgramFile"]

_JSON_LIMIT = 512 << 20


class ExportedProgramFile:
    """An ExportedProgram: its graph, weights and (mostly) its example inputs."""

    name = "exported-program"
    title = "a torch.export archive"
    runs_code = True

    def detect(self, file: SourceFile) -> bool:
        """New archives say so in a member; those before torch 2.8 hold one JSON file."""
        return file.member("archive_format", 16) == b"pt2" or any(
            name.endswith("serialized_exported_program.json") for name in file.members
        )

    def load(self, file: SourceFile, options: LoadOptions) -> Loaded:
        """Loads the only (or the default) program of the archive."""
        del options
        if any(name.startswith("data/aotinductor/") for name in file.members):
            raise UnsupportedModelError(
                f"{file.path} is an AOTInductor package: machine code for the computer that made "
                "it.",
                cause="Its graph is not in it, so it cannot be compiled for another processor.",
                next_step="Save the program itself: torch.export.save(program, 'model.pt2').",
            )
        register_operators(*_programs(file))
        try:
            # A handle, because torch warns about any path that does not end in .pt2.
            with file.path.open("rb") as handle:
                program = torch.export.load(handle)
        except Exception as error:
            raise UnsupportedModelError(
                f"torch {torch.__version__} cannot load {file.path}, "
                f"saved by torch {_saved_by(file)}: {_first_line(error)}",
                cause=_cause(error),
                next_step="Save it again with torch.export.save under this version, "
                "or name a Python factory instead.",
            ) from error
        example = None
        if program.example_inputs is not None:
            args, kwargs = program.example_inputs
            example = Arguments(args=tuple(args), kwargs=dict(kwargs))
        return Loaded(
            name=file.path.stem, module=program.module(), program=program, example=example
        )


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__


def _saved_by(file: SourceFile) -> str:
    """The version of torch that the archive names; old ones name none."""
    for document in _programs(file):
        found = re.search(rb'"torch_version": ?"([\w.+]{1,40})"', document)
        if found:
            return found[1].decode()
    return "of an unknown version"


def _programs(file: SourceFile) -> Iterator[bytes]:
    """The programs of the archive, as the JSON they are stored in."""
    for name in file.members:
        if name.endswith("serialized_exported_program.json") or (
            name.startswith("models/") and name.endswith(".json")
        ):
            yield file.member(name, _JSON_LIMIT)


def _cause(error: Exception) -> str:
    if isinstance(error, OSError):
        return (
            "The code in the file reaches for files, network or processes, and loading a model "
            "gives it none."
        )
    return "Exported programs can be read by the version that wrote them, and mostly by newer ones."
