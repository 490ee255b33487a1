"""An `ExportedModel` as plain data: what the loading process writes and the parent reads.

The parent does not trust what it reads, since the model's code ran in the process that wrote it.
torch's own reader would be no help: it unpickles, it resolves operator names with ``getattr``
from the ``torch`` module down, it evaluates size expressions and guards as Python, and it imports
modules that pytree descriptions name. So the graph travels as torch's JSON and is let through
only if every such text is of a known harmless form (`safe_program`); tensors travel as raw bytes
(`tensor_file`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._export.serde import schema
from torch._export.serde.serialize import (
    ExportedProgramDeserializer,
    ExportedProgramSerializer,
    _bytes_to_dataclass,
    _dataclass_to_dict,
)
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram

from edgectl.errors import UnsupportedModelError
from edgectl.records import ExampleCall, ExportedModel, TensorSpec
from edgectl.sources.operator_libraries import register_operators
from edgectl.sources.safe_program import checked_program
from edgectl.sources.tensor_file import read_tensors, write_tensors
from edgectl.sources.tensors import from_tensor, to_tensor
from edgectl.sources.untrusted_files import read_regular
from edgectl_runner.contract import ContractError, from_document, to_document

__all__ = ["read_model", "write_model"]

_PROGRAM, _TENSORS, _RECORD = "program.json", "tensors.bin", "record.json"
# As Python objects, hostile JSON takes some twenty times its size.
_TEXT_LIMIT = 64 << 20
_Literal = str | int | float | bool | None


def write_model(model: ExportedModel, folder: Path) -> None:
    """Writes three files into ``folder``.

    Raises:
        UnsupportedModelError: the program holds something that is not a tensor (a script object).
    """
    arrays: dict[str, np.ndarray] = {}
    parameters: list[str] = []
    shared: dict[tuple[Any, ...], np.ndarray] = {}
    program = model.program
    for group, tensors in (("state", program.state_dict), ("constant", program.constants)):
        for name, value in tensors.items():
            if not isinstance(value, torch.Tensor):
                raise UnsupportedModelError(
                    f"The program holds {name}, a {type(value).__name__}, beside its tensors.",
                    next_step="Make it a tensor, or name a Python factory instead of the file.",
                )
            key = (value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
            if key not in shared or value.numel() == 0:
                shared[key] = from_tensor(value)
            arrays[f"{group}.{name}"] = shared[key]
            if isinstance(value, torch.nn.Parameter):
                parameters.append(f"{group}.{name}")
    record: dict[str, Any] = {
        "name": model.name,
        "source_kind": model.source_kind,
        "inputs": [to_document(spec) for spec in model.inputs],
        "output_names": list(model.output_names),
        "notes": list(model.notes),
        "parameters": parameters,
        "calls": [],
    }
    for number, call in enumerate(model.calls):
        literals: dict[str, Any] = {}
        for index, array in enumerate(call.inputs):
            arrays[f"call.{number}.input.{index}"] = array
        for index, output in enumerate(call.outputs):
            if isinstance(output, np.ndarray):
                arrays[f"call.{number}.output.{index}"] = output
            else:
                literals[str(index)] = output
        record["calls"].append(
            {"inputs": len(call.inputs), "outputs": len(call.outputs), "literals": literals}
        )
    serialized = ExportedProgramSerializer().serialize(program).exported_program
    document = _dataclass_to_dict(serialized)  # type: ignore[no-untyped-call]
    (folder / _PROGRAM).write_text(json.dumps(document), encoding="utf-8")
    (folder / _RECORD).write_text(json.dumps(record), encoding="utf-8")
    write_tensors(folder / _TENSORS, arrays)


def read_model(folder: Path, *, digest: str) -> ExportedModel:
    """Reads what `write_model` wrote, or what a hostile model wrote in its place.

    Raises:
        UnsupportedModelError: it is anything but plain data of the expected form.
    """
    try:
        record = _json(folder / _RECORD)
        arrays = read_tensors(folder / _TENSORS)
        text = read_regular(folder / _PROGRAM, _TEXT_LIMIT)
        document = checked_program(json.loads(text))
        register_operators(text)
        parameters = set(record["parameters"])
        state = {
            name.removeprefix("state."): _tensor(array, parameter=name in parameters)
            for name, array in arrays.items()
            if name.startswith("state.")
        }
        constants = {
            name.removeprefix("constant."): _tensor(array, parameter=name in parameters)
            for name, array in arrays.items()
            if name.startswith("constant.")
        }
        calls = tuple(_call(number, entry, arrays) for number, entry in enumerate(record["calls"]))
        inputs = tuple(from_document(TensorSpec, item) for item in record["inputs"])
        names, notes = _texts(record["output_names"]), _texts(record["notes"])
        name, kind = _texts([record["name"], record["source_kind"]])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _refused(str(error)) from error
    try:
        serialized = _bytes_to_dataclass(schema.ExportedProgram, json.dumps(document).encode())
        program = ExportedProgramDeserializer(None).deserialize(serialized, state, constants, b"")
    except Exception as error:
        raise _refused(
            str(error).splitlines()[0] if str(error) else type(error).__name__
        ) from error
    _check_targets(program)
    # The archive carries none: its own form for them is a pickle.
    program.example_inputs = (tuple(to_tensor(array) for array in calls[0].inputs), {})
    return ExportedModel(
        name=name,
        source_kind=kind,
        digest=digest,
        program=program,
        inputs=inputs,
        output_names=names,
        calls=calls,
        notes=notes,
    )


def _check_targets(program: ExportedProgram) -> None:
    """What the names became has to be operators, not something else that torch happens to have."""
    for part in program.graph_module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in part.graph.nodes:
            operator = isinstance(node.target, (OpOverload, HigherOrderOperator))
            plain = getattr(node.target, "__module__", "") in ("_operator", "math", "torch")
            if node.op == "call_function" and not operator and not plain:
                raise _refused(f"operator {node.target}")
            if node.op in ("call_method", "call_module"):
                raise _refused(f"a call of {node.target}")


def _json(path: Path) -> Any:
    return json.loads(read_regular(path, _TEXT_LIMIT))


def _tensor(array: np.ndarray, *, parameter: bool) -> torch.Tensor:
    tensor = to_tensor(array)
    return torch.nn.Parameter(tensor, requires_grad=False) if parameter else tensor


def _texts(items: Any) -> tuple[str, ...]:
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ContractError("a list of texts is something else")
    return tuple(items)


def _call(number: int, entry: Any, arrays: dict[str, np.ndarray]) -> ExampleCall:
    literals: dict[str, _Literal] = entry["literals"]
    if not all(isinstance(v, (str, int, float, bool, type(None))) for v in literals.values()):
        raise ContractError("a literal output is something else")
    return ExampleCall(
        inputs=tuple(arrays[f"call.{number}.input.{i}"] for i in range(int(entry["inputs"]))),
        outputs=tuple(
            literals[str(i)] if str(i) in literals else arrays[f"call.{number}.output.{i}"]
            for i in range(int(entry["outputs"]))
        ),
    )


def _refused(why: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"What came out of loading the model is not a plain program: {why[:300]}",
        cause="The model uses something that cannot be passed on as data, or it tried to pass on "
        "code.",
        next_step="If you wrote it: name a Python factory (file.py:function) instead of the file.",
    )
