"""Inference requests and answers on the wire: JSON, and Triton's binary tensor extension.

With the header ``Inference-Header-Content-Length: N`` a body is N bytes of JSON followed by the
raw tensors (row-major, little-endian) in the order in which the JSON names them. Binary inputs
are views into the body that was received; nothing is copied here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgectl_runner.contract import EntryPoint, TensorSpec
from edgectl_runner.engine import Value
from edgectl_runner.failures import RunnerError
from edgectl_runner.service.datatypes import DATATYPES
from edgectl_runner.service.messages import HttpError, Response
from edgectl_runner.tensors import check_inputs, dtype_named

__all__ = ["InferenceRequest", "decode_request", "encode_response", "output_specs"]

HEADER_LENGTH = "inference-header-content-length"
MAX_ID_CHARACTERS = 256
MAX_RANK = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRequest:
    """One decoded request: arrays in the order of the model's signature.

    ``outputs`` maps the wanted outputs to whether they travel as binary; ``timeout_s`` is the
    client's own deadline. ``sequence`` names the session of a stateful model.
    """

    identifier: str | None
    inputs: tuple[np.ndarray, ...]
    outputs: Mapping[str, bool]
    timeout_s: float | None = None
    sequence: str | None = None
    sequence_start: bool = False
    sequence_end: bool = False


def output_specs(entry: EntryPoint) -> dict[str, TensorSpec]:
    """The tensor outputs of an entry point by name, in order."""
    found: dict[str, TensorSpec] = {}
    for binding in entry.outputs:
        spec = binding.spec
        if spec is None and binding.source == "input" and binding.index is not None:
            spec = entry.inputs[binding.index]
        if binding.source != "literal" and spec is not None:
            found[binding.name] = spec
    return found


def decode_request(
    entry: EntryPoint, headers: Mapping[str, str], body: memoryview
) -> InferenceRequest:
    """Reads a request for that entry point.

    Raises:
        HttpError: 400, with what is wrong.
    """
    document, binary = _split(headers, body)
    parameters = _object(document.get("parameters", {}), "parameters")
    arrays = _decode_inputs(entry, document.get("inputs"), binary)
    try:
        inputs = check_inputs(entry.inputs, arrays)
    except RunnerError as error:
        raise HttpError(400, error.message) from error
    return InferenceRequest(
        identifier=_identifier(document.get("id")),
        inputs=tuple(inputs),
        outputs=_wanted_outputs(entry, document.get("outputs"), parameters),
        timeout_s=_timeout(parameters.get("timeout")),
        sequence=_sequence(parameters.get("sequence_id")),
        sequence_start=parameters.get("sequence_start") is True,
        sequence_end=parameters.get("sequence_end") is True,
    )


def encode_response(
    model: str,
    version: str,
    request: InferenceRequest,
    entry: EntryPoint,
    values: Sequence[Value],
) -> Response:
    """The answer, with each output as the client asked for it.

    Raises:
        HttpError: 400, an output holds numbers that JSON cannot express.
    """
    named = dict(zip((b.name for b in entry.outputs), values, strict=True))
    outputs: list[dict[str, Any]] = []
    parts: list[memoryview] = []
    for name, as_binary in request.outputs.items():
        array = named[name]
        if not isinstance(array, np.ndarray):
            continue
        described: dict[str, Any] = {
            "name": name,
            "datatype": DATATYPES[array.dtype.name],
            "shape": list(array.shape),
        }
        if as_binary:
            described["parameters"] = {"binary_data_size": array.nbytes}
            # As bytes: an extension dtype (bfloat16) has no buffer format of its own.
            parts.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        else:
            described["data"] = _as_json(name, array)
        outputs.append(described)
    document: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": outputs}
    if request.identifier is not None:
        document["id"] = request.identifier
    literals = {b.name: b.literal for b in entry.outputs if b.source == "literal"}
    if literals := {k: v for k, v in literals.items() if v is not None}:
        document["parameters"] = literals
    head = json.dumps(document, separators=(",", ":")).encode()
    if not parts:
        return Response(status=200, headers={"content-type": "application/json"}, parts=(head,))
    return Response(
        status=200,
        headers={"content-type": "application/octet-stream", HEADER_LENGTH: str(len(head))},
        parts=(head, *parts),
    )


def _split(headers: Mapping[str, str], body: memoryview) -> tuple[dict[str, Any], memoryview]:
    length = headers.get(HEADER_LENGTH)
    if length is None:
        text, binary = body, body[:0]
    else:
        if not (length.isascii() and length.isdigit()) or len(length) > 12:
            raise HttpError(400, f"{HEADER_LENGTH} is not a number")
        if int(length) > len(body):
            raise HttpError(400, f"{HEADER_LENGTH} is {length}, the body has {len(body)} bytes")
        text, binary = body[: int(length)], body[int(length) :]
    try:
        document = json.loads(bytes(text), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise HttpError(400, f"the body is not JSON: {_short(error)}") from error
    return _object(document, "the body"), binary


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON; send such values as binary data")


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise HttpError(400, f"{what} is not a JSON object")
    return value


def _objects(value: Any, what: str) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise HttpError(400, f"{what!r} is not a list")
    return [_object(item, f"an entry of {what!r}") for item in value]


def _decode_inputs(entry: EntryPoint, given: Any, binary: memoryview) -> list[np.ndarray]:
    specs = {spec.name: spec for spec in entry.inputs}
    arrays: dict[str, np.ndarray] = {}
    for item in _objects(given, "inputs"):
        name = item.get("name")
        if not isinstance(name, str) or name not in specs:
            have = ", ".join(specs) or "none"
            raise HttpError(400, f"the model has no input {_short(name)}; it has {have}")
        if name in arrays:
            raise HttpError(400, f"input {name!r} is given twice")
        arrays[name], binary = _decode_tensor(name, specs[name], item, binary)
    if len(binary):
        raise HttpError(400, f"{len(binary)} bytes of the body belong to no input")
    missing = [name for name in specs if name not in arrays]
    if missing:
        raise HttpError(400, f"inputs are missing: {', '.join(missing)}")
    return [arrays[name] for name in specs]


def _decode_tensor(
    name: str, spec: TensorSpec, item: dict[str, Any], binary: memoryview
) -> tuple[np.ndarray, memoryview]:
    shape = _shape(name, item.get("shape"))
    datatype = item.get("datatype")
    if datatype != DATATYPES[spec.dtype]:
        raise HttpError(
            400, f"input {name!r} is {DATATYPES[spec.dtype]}, the request says {_short(datatype)}"
        )
    dtype = dtype_named(spec.dtype)
    size = _object(item.get("parameters", {}), "parameters").get("binary_data_size")
    if size is None:
        return _from_json(name, item.get("data"), shape, dtype), binary
    count = math.prod(shape)
    if type(size) is not int or size != count * dtype.itemsize:
        raise HttpError(
            400,
            f"input {name!r}: binary_data_size is {_short(size)}, "
            f"its shape needs {count * dtype.itemsize}",
        )
    if size > len(binary):
        raise HttpError(400, f"input {name!r}: the body ends before its data does")
    # Booleans must be 0 or 1 in memory; anything else is undefined for whoever reads them.
    array = np.frombuffer(binary[:size], np.uint8).view(dtype).reshape(shape)
    if dtype == np.bool_ and bool((array.view(np.uint8) > 1).any()):
        raise HttpError(400, f"input {name!r}: a BOOL is a byte of 0 or 1")
    return array, binary[size:]


def _shape(name: str, given: Any) -> tuple[int, ...]:
    if not isinstance(given, list) or len(given) > MAX_RANK:
        raise HttpError(400, f"input {name!r}: 'shape' is not a list of sizes")
    if not all(type(size) is int and 0 <= size < 1 << 40 for size in given):
        raise HttpError(400, f"input {name!r}: 'shape' is not a list of sizes")
    return tuple(given)


def _from_json(name: str, data: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """Numbers from JSON, flat or nested; nothing is rounded to another kind in silence."""
    if not isinstance(data, list):
        raise HttpError(400, f"input {name!r}: 'data' is not a list")
    try:
        found = np.array(data)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise HttpError(400, f"input {name!r}: 'data' is not a full array of numbers") from error
    if found.size == 0 and found.dtype == np.float64:
        found = found.astype(dtype)
    _check_kind(name, found, dtype)
    if found.size != math.prod(shape) or found.shape not in ((found.size,), shape):
        raise HttpError(
            400,
            f"input {name!r}: 'data' has shape {list(found.shape)[:MAX_RANK]}, "
            f"'shape' says {list(shape)}",
        )
    with np.errstate(over="ignore"):
        array = found.astype(dtype).reshape(shape)
    if dtype.kind not in "biu" and not bool(np.isfinite(array).all()):
        raise HttpError(400, f"input {name!r}: a number is too large for {DATATYPES[dtype.name]}")
    return array


def _check_kind(name: str, found: np.ndarray, dtype: np.dtype[Any]) -> None:
    if dtype.kind == "b":
        fits = found.dtype.kind == "b" or (
            found.dtype.kind in "iu" and bool(((found == 0) | (found == 1)).all())
        )
    elif dtype.kind in "iu":
        limits = np.iinfo(dtype)
        fits = found.dtype.kind in "iu" and (
            found.size == 0 or (int(found.min()) >= limits.min and int(found.max()) <= limits.max)
        )
    else:
        fits = found.dtype.kind in "fiu"
    if not fits:
        raise HttpError(
            400, f"input {name!r}: 'data' holds values that are not {DATATYPES[dtype.name]}"
        )


def _wanted_outputs(
    entry: EntryPoint, given: Any, parameters: Mapping[str, Any]
) -> dict[str, bool]:
    specs = output_specs(entry)
    by_default = parameters.get("binary_data_output") is True
    if given is None or given == []:
        return dict.fromkeys(specs, by_default)
    wanted: dict[str, bool] = {}
    for item in _objects(given, "outputs"):
        name = item.get("name")
        if not isinstance(name, str) or name not in specs:
            have = ", ".join(specs) or "none"
            raise HttpError(400, f"the model has no output {_short(name)}; it has {have}")
        own = _object(item.get("parameters", {}), "parameters")
        if own.get("classification"):
            raise HttpError(400, "the classification extension is not supported")
        wanted[name] = own.get("binary_data", by_default) is True
    return wanted


def _as_json(name: str, array: np.ndarray) -> list[Any]:
    if array.dtype.kind not in "biu":
        if not bool(np.isfinite(array).all()):
            raise HttpError(
                400, f"output {name!r} holds NaN or infinity, which JSON cannot say; ask for binary"
            )
        if array.dtype.kind != "f":  # bfloat16 and other extension types
            array = array.astype(np.float32)
    values: list[Any] = array.reshape(-1).tolist()
    return values


def _identifier(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MAX_ID_CHARACTERS:
        raise HttpError(400, f"'id' is not a text of at most {MAX_ID_CHARACTERS} characters")
    return value


def _timeout(value: Any) -> float | None:
    """Triton's ``timeout`` parameter: microseconds."""
    if value is None:
        return None
    if type(value) is not int or value <= 0:
        raise HttpError(400, "'timeout' is a number of microseconds")
    return min(value, 1 << 53) / 1e6


def _sequence(value: Any) -> str | None:
    if value is None or value == 0 or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)[:99]) > 64:
        raise HttpError(400, "'sequence_id' is a number or a text of at most 64 characters")
    return str(value)


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, Exception) else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
