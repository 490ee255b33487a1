"""Models that come as MLIR: their signature, and inputs for it."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from edgectl.errors import UnsupportedModelError, UsageError
from edgectl.records import Dialect, ExampleCall, ExportedModel, ImportedModule, TensorSpec
from edgectl.sources.examples import example_array
from edgectl.sources.input_specs import InputSpec
from edgectl.sources.options import LoadOptions
from edgectl.sources.source_file import SourceFile

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["Signature", "imported_model", "input_arrays", "read_mlir"]

_TENSOR = re.compile(r"tensor<((?:[\d?]+x)*)(\w+)>\Z")
_DTYPES = {
    "f16": "float16",
    "f32": "float32",
    "i1": "bool",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "si8": "int8",
    "ui8": "uint8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The one public function of a module."""

    module: ImportedModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def read_mlir(file: SourceFile, data: bytes) -> Signature:
    """Parses TOSA as text or bytecode with the compiler that will compile it.

    Raises:
        UnsupportedModelError: it does not parse, has not exactly one public function, or is not
            TOSA between fixed-size tensors.
    """
    from iree.compiler import ir

    with ir.Context():
        try:
            module = ir.Module.parse(data)
        except Exception as error:
            raise UnsupportedModelError(
                f"{file.path} is no MLIR that this compiler reads: {_reason(error)}",
                cause="It was probably written by another version of MLIR, or uses operations "
                "that IREE does not know.",
                next_step="Make it again with a current converter.",
            ) from error
        text = str(module) if len(data) < _TEXT_LIMIT else "tosa."
        functions = [
            operation
            for operation in module.body.operations
            if operation.operation.name == "func.func"
            and "private" not in str(operation.attributes.get("sym_visibility", ""))
        ]
        if len(functions) != 1 or "tosa." not in text:
            raise UnsupportedModelError(
                f"{file.path} holds {len(functions)} public functions"
                + ("." if "tosa." in text else ", and nothing of TOSA."),
                next_step="Leave one function in it that computes the model in TOSA.",
            )
        function = functions[0]
        name = str(function.attributes["sym_name"]).strip('"')
        kind = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)
        inputs = _specs(file, "input", [str(item) for item in kind.inputs])
        outputs = _specs(file, "output", [str(item) for item in kind.results])
        buffer = io.BytesIO()
        module.operation.write_bytecode(buffer)
    return Signature(
        module=ImportedModule(dialect=Dialect.TOSA, bytecode=buffer.getvalue(), function=name),
        inputs=inputs,
        outputs=outputs,
    )


_TEXT_LIMIT = 64 << 20


def input_arrays(signature: Signature, options: LoadOptions) -> tuple[np.ndarray, ...]:
    """The user's inputs, or seeded ones.

    Raises:
        UsageError: there are too many, or one is of another shape or dtype.
    """
    named = {item.name: item for item in options.inputs if item.name}
    free = [item for item in options.inputs if item.name is None]
    arrays = []
    for number, spec in enumerate(signature.inputs):
        given = named.pop(spec.name, None) or (free.pop(0) if free else None)
        shape = tuple(size or 1 for size in spec.shape)
        if given is None:
            wanted = InputSpec(name=spec.name, shape=shape, dtype=spec.dtype)
            arrays.append(example_array(wanted, (), seed=options.seed + number))
            continue
        array = given.fitted(shape, spec.dtype)
        if array.shape != shape or array.dtype.name != spec.dtype:
            raise UsageError(
                f"Input {spec.name!r} is {'x'.join(map(str, array.shape))} {array.dtype.name}; "
                f"the model takes {'x'.join(map(str, shape))} {spec.dtype}.",
                next_step="Bring the input into that shape and dtype.",
            )
        arrays.append(array)
    if named or free or options.input_specs:
        names = ", ".join(spec.name for spec in signature.inputs)
        raise UsageError(
            "The model itself says what its inputs are, and more was given.",
            next_step=f"Give one --input for each of: {names}. Leave --input-spec out.",
        )
    return tuple(arrays)


def imported_model(
    file: SourceFile,
    kind: str,
    signature: Signature,
    call: ExampleCall,
    notes: tuple[str, ...],
) -> ExportedModel:
    """The record of a model without an exported program."""
    return ExportedModel(
        name=file.path.stem,
        source_kind=kind,
        digest=file.sha256,
        program=cast("ExportedProgram", None),
        inputs=signature.inputs,
        output_names=tuple(spec.name for spec in signature.outputs),
        calls=(call,),
        notes=notes,
        imported=signature.module,
    )


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    return next((line for line in lines if "error:" in line), lines[-1])[:300]


def _specs(file: SourceFile, word: str, types: list[str]) -> tuple[TensorSpec, ...]:
    specs = []
    for number, text in enumerate(types):
        match = _TENSOR.match(text)
        if match is None or match[2] not in _DTYPES or "?" in match[1]:
            raise UnsupportedModelError(
                f"An {word} of {file.path} is {text}.",
                cause="Only tensors of a fixed size and a usual dtype can be exchanged.",
                next_step="Convert the model again with a fixed batch size.",
            )
        name = word if len(types) == 1 else f"{word}_{number}"
        shape = tuple(int(size) for size in match[1].split("x") if size)
        specs.append(TensorSpec(name=name, shape=shape, dtype=_DTYPES[match[2]]))
    return tuple(specs)
