"""``.tflite`` through Arm's converter to TOSA; quantized models keep their integers.

Both the converter (``tosa-converter-for-tflite``) and LiteRT (``ai-edge-litert``), whose outputs
are the truth, have to be installed.
"""

from __future__ import annotations

import importlib.util
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

__all__ = ["TfliteFile"]


class TfliteFile:
    """A TensorFlow Lite flatbuffer."""

    name = "tflite"
    title = "a TFLite model"
    runs_code = False

    def detect(self, file: SourceFile) -> bool:
        """By the file identifier of its schema."""
        return file.head[4:8] == b"TFL3"

    def load(self, file: SourceFile, options: LoadOptions) -> ExportedModel:
        """Converts to TOSA and runs LiteRT on the inputs."""
        for module, package in (
            ("tosa_converter_for_tflite", "tosa-converter-for-tflite"),
            ("ai_edge_litert", "ai-edge-litert"),
        ):
            if importlib.util.find_spec(module) is None:
                raise UsageError(
                    f"{file.path} is a TFLite model, and {package} is not installed.",
                    cause="TFLite models are converted by tosa-converter-for-tflite and compared "
                    "with ai-edge-litert.",
                    next_step="pip install tosa-converter-for-tflite ai-edge-litert",
                )
        signature = read_mlir(file, _converted(file))
        arrays = input_arrays(signature, options)
        call = ExampleCall(inputs=arrays, outputs=_litert(file, signature, arrays))
        return imported_model(file, self.name, signature, call, ("compared with LiteRT",))


def _converted(file: SourceFile) -> bytes:
    from tosa_converter_for_tflite import tflite_flatbuffer_to_tosa_mlir

    with tempfile.TemporaryDirectory(prefix="edgectl-tflite-") as folder:
        output = Path(folder) / "model.mlirbc"
        try:
            tflite_flatbuffer_to_tosa_mlir(str(file.path), str(output))
            return output.read_bytes()
        except (RuntimeError, OSError) as error:
            raise UnsupportedModelError(
                f"{file.path} cannot be converted to TOSA: {str(error)[:300]}",
                cause="It is damaged, or uses an operator that TOSA does not have.",
                next_step="Take the model's PyTorch or ONNX form, if there is one.",
            ) from error


def _litert(
    file: SourceFile, signature: Signature, arrays: tuple[np.ndarray, ...]
) -> tuple[Any, ...]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    # The reference kernels: the optimised ones round quantized models in their own ways.
    interpreter = Interpreter(
        model_path=str(file.path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()
    shapes = [tuple(int(size) for size in item["shape"]) for item in details]
    if len(details) != len(arrays) or shapes != [array.shape for array in arrays]:
        raise UnsupportedModelError(
            f"{file.path} takes {shapes} in LiteRT and "
            f"{[spec.shape for spec in signature.inputs]} after conversion.",
            next_step="Convert the model with a fixed batch size.",
        )
    for item, array in zip(details, arrays, strict=True):
        interpreter.set_tensor(item["index"], array)
    interpreter.invoke()
    return tuple(
        np.array(interpreter.get_tensor(item["index"])) for item in interpreter.get_output_details()
    )
