"""TOSA itself: MLIR as text or bytecode, and the serialized flatbuffer (``.tosa``).

Arm's ``tosa-tools`` is what they are judged by: ``tosa-opt`` turns one form into the other, and
the package's reference model computes the expected outputs.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgectl.errors import UnsupportedModelError, UsageError
from edgectl.records import ExampleCall
from edgectl.sources.imported import Signature, imported_model, input_arrays, read_mlir
from edgectl.sources.options import LoadOptions
from edgectl.sources.source_file import SourceFile

if TYPE_CHECKING:
    from edgectl.records import ExportedModel

__all__ = ["TosaFlatbufferFile", "TosaMlirFile"]

_BYTECODE = b"ML\xefR"
_DEADLINE_S = 300


class TosaMlirFile:
    """TOSA in MLIR, as text or bytecode."""

    name = "tosa-mlir"
    title = "a TOSA module"
    runs_code = False

    def detect(self, file: SourceFile) -> bool:
        """MLIR's magic bytes, or text that begins like a module or a function."""
        text = file.head.lstrip()
        return file.head.startswith(_BYTECODE) or text.startswith((b"module", b"func.func", b"#"))

    def load(self, file: SourceFile, options: LoadOptions) -> ExportedModel:
        """Parses it and runs the reference model."""
        data = file.path.read_bytes()
        signature = read_mlir(file, data)
        with tempfile.TemporaryDirectory(prefix="edgectl-tosa-") as name:
            serialized = Path(name) / "model.tosa"
            _tosa_opt(
                file,
                str(file.path.resolve()),
                "--tosa-serialize",
                f"--tosa-flatbuffer-filename={serialized}",
                "-o",
                str(Path(name) / "out"),
            )
            return _model(file, self.name, signature, serialized.read_bytes(), options)


class TosaFlatbufferFile:
    """TOSA serialized by ``tosa-opt`` or the serialization library."""

    name = "tosa-flatbuffer"
    title = "a serialized TOSA model"
    runs_code = False

    def detect(self, file: SourceFile) -> bool:
        """By the file identifier of its schema."""
        return file.head[4:8] == b"TOSA"

    def load(self, file: SourceFile, options: LoadOptions) -> ExportedModel:
        """Turns it into MLIR and runs the reference model."""
        with tempfile.TemporaryDirectory(prefix="edgectl-tosa-") as name:
            empty, output = Path(name) / "empty.mlir", Path(name) / "model.mlirbc"
            empty.write_text("module {}\n")
            _tosa_opt(
                file,
                str(empty),
                "--tosa-deserialize",
                f"--tosa-deserialize-filename={file.path.resolve()}",
                "--emit-bytecode",
                "-o",
                str(output),
            )
            signature = read_mlir(file, output.read_bytes())
        return _model(file, self.name, signature, file.path.read_bytes(), options)


def _model(
    file: SourceFile, kind: str, signature: Signature, serialized: bytes, options: LoadOptions
) -> ExportedModel:
    arrays = input_arrays(signature, options)
    outputs = _reference(file, signature, serialized, arrays)
    call = ExampleCall(inputs=arrays, outputs=outputs)
    return imported_model(file, kind, signature, call, ("compared with TOSA's reference model",))


def _tosa_opt(file: SourceFile, *arguments: str) -> None:
    tool = shutil.which("tosa-opt")
    if tool is None or importlib.util.find_spec("tosa_reference_model") is None:
        raise UsageError(
            f"{file.path} is TOSA, and tosa-tools is not installed.",
            cause="Its reference model computes what the device has to answer.",
            next_step="pip install --no-deps tosa-tools",
        )
    try:
        done = subprocess.run(
            [tool, *arguments], capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UnsupportedModelError(f"tosa-opt did not end on {file.path}.") from error
    if done.returncode != 0:
        words = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
        raise UnsupportedModelError(
            f"{file.path} is no TOSA that tosa-opt reads: {words[0][:300]}",
            cause="It is damaged, or of another version of TOSA.",
            next_step="Make it again with a current converter.",
        )


def _reference(
    file: SourceFile, signature: Signature, serialized: bytes, arrays: tuple[np.ndarray, ...]
) -> tuple[Any, ...]:
    import tosa_reference_model

    outputs, status = tosa_reference_model.run(serialized, list(arrays))
    if status != tosa_reference_model.GraphStatus.TOSA_VALID:
        raise UnsupportedModelError(
            f"TOSA's reference model refuses {file.path}: {status}.",
            next_step="Check the module with tosa-opt --tosa-validate.",
        )
    return tuple(
        np.frombuffer(np.asarray(output).tobytes(), dtype=spec.dtype).reshape(
            tuple(size or 1 for size in spec.shape)
        )
        for output, spec in zip(outputs, signature.outputs, strict=True)
    )
