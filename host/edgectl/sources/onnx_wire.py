"""Reads an ``.onnx`` file into plain records: protobuf's wire format, and the fields used here.

Numbers of fields are those of ONNX's ``onnx.proto``. Nothing is run, nothing larger than the file
is allocated, and weights outside of the file are not followed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Graph", "MalformedOnnxError", "Model", "Node", "Port", "read_onnx"]

_DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
}
_DEPTH = 32


class MalformedOnnxError(ValueError):
    """The bytes are not an ONNX model, or use what is not read here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An input or output of the graph; names of varying sizes stand in ``shape``."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operation; an empty name among the inputs is an input that is left out."""

    name: str
    operator: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes in an order in which they can be computed."""

    nodes: tuple[Node, ...]
    weights: dict[str, np.ndarray] = field(repr=False)
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """``opset`` is that of ONNX's own operators."""

    graph: Graph
    opset: int
    producer: str


def read_onnx(data: bytes) -> Model:
    """Parses a model.

    Raises:
        MalformedOnnxError: it is not one, or is cut off.
    """
    try:
        return _model(memoryview(data))
    except (struct.error, IndexError, UnicodeDecodeError, KeyError, ValueError, TypeError) as error:
        raise MalformedOnnxError(str(error)) from error


def _model(data: memoryview) -> Model:
    graph, opset, producer = None, 0, ""
    for number, value in _fields(data):
        if number == 7:
            graph = _graph(value, 0)
        elif number == 8:
            one = dict(_fields(value))
            if _text(one.get(1, b"")) in ("", "ai.onnx"):
                opset = int(one.get(2, 0))
        elif number == 2:
            producer = _text(value)
    if graph is None:
        raise MalformedOnnxError("there is no graph in it")
    return Model(graph=graph, opset=opset, producer=producer)


def _graph(data: memoryview, depth: int) -> Graph:
    if depth > _DEPTH:
        raise MalformedOnnxError("graphs are nested too deeply")
    nodes: list[Node] = []
    weights: dict[str, np.ndarray] = {}
    inputs: list[Port] = []
    outputs: list[Port] = []
    for number, value in _fields(data):
        if number == 1:
            nodes.append(_node(value, depth))
        elif number == 5:
            name, array = _tensor(value)
            weights[name] = array
        elif number == 11:
            inputs.append(_port(value))
        elif number == 12:
            outputs.append(_port(value))
    return Graph(nodes=tuple(nodes), weights=weights, inputs=tuple(inputs), outputs=tuple(outputs))


def _node(data: memoryview, depth: int) -> Node:
    lists: dict[int, list[str]] = {1: [], 2: []}
    texts = {3: "", 4: "", 7: ""}
    attributes: dict[str, Any] = {}
    for number, value in _fields(data):
        if number in lists:
            lists[number].append(_text(value))
        elif number in texts:
            texts[number] = _text(value)
        elif number == 5:
            name, item = _attribute(value, depth)
            attributes[name] = item
    return Node(
        name=texts[3],
        operator=texts[4],
        domain=texts[7],
        inputs=tuple(lists[1]),
        outputs=tuple(lists[2]),
        attributes=attributes,
    )


def _attribute(data: memoryview, depth: int) -> tuple[str, Any]:
    name, kind = "", 0
    single: dict[int, Any] = {}
    floats: list[float] = []
    ints: list[int] = []
    strings: list[str] = []
    for number, value in _fields(data):
        if number == 1:
            name = _text(value)
        elif number == 20:
            kind = int(value)
        elif number == 7:
            floats += _packed_floats(value)
        elif number == 8:
            ints += _packed_ints(value)
        elif number == 9:
            strings.append(_text(value))
        else:
            single[number] = value
    values: dict[int, Any] = {6: floats, 7: ints, 8: strings}
    if kind in values:
        return name, values[kind]
    if kind == 1:
        return name, float(single.get(2, 0.0))
    if kind == 2:
        return name, _signed(single.get(3, 0))
    if kind == 3:
        return name, _text(single.get(4, b""))
    if kind == 4:
        return name, _tensor(single[5])[1]
    if kind == 5:
        return name, _graph(single[6], depth + 1)
    raise MalformedOnnxError(f"attribute {name!r} is of a kind that is not read (type {kind})")


def _tensor(data: memoryview) -> tuple[str, np.ndarray]:
    dims: list[int] = []
    name, kind, raw = "", 0, None
    floats: list[float] = []
    doubles: list[float] = []
    ints: list[int] = []
    for number, value in _fields(data):
        if number == 1:
            dims += _packed_ints(value)
        elif number == 2:
            kind = int(value)
        elif number == 8:
            name = _text(value)
        elif number == 9:
            raw = value
        elif number == 4:
            floats += _packed_floats(value)
        elif number == 10:
            doubles += [value] if isinstance(value, float) else np.frombuffer(value, "<f8").tolist()
        elif number in (5, 7):
            ints += _packed_ints(value)
        elif number in (13, 14) and (number == 13 or value == 1):
            raise MalformedOnnxError(f"weight {name!r} lies in another file; save it inside")
    if kind not in _DTYPES:
        raise MalformedOnnxError(f"weight {name!r} is of a dtype that is not read ({kind})")
    dtype = np.dtype(_DTYPES[kind])
    if raw is not None:
        array = np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype)
    elif kind == 10:
        array = np.asarray(ints, dtype=np.uint16).view(np.float16)
    else:
        array = np.asarray(floats or doubles or ints, dtype=dtype)
    return name, array.reshape(tuple(dims)).copy()


def _port(data: memoryview) -> Port:
    name, dtype = "", ""
    shape: list[int | str] = []
    for number, value in _fields(data):
        if number == 1:
            name = _text(value)
        elif number == 2:
            tensor = dict(_fields(dict(_fields(value)).get(1, memoryview(b""))))
            dtype = _DTYPES.get(int(tensor.get(1, 0)), "")
            for _, dim in _fields(tensor.get(2, memoryview(b""))):
                parts = dict(_fields(dim))
                size = _signed(parts.get(1, 0))
                shape.append(size if size > 0 else _text(parts.get(2, b"")) or "?")
    return Port(name=name, dtype=dtype, shape=tuple(shape))


def _fields(data: memoryview) -> Iterator[tuple[int, Any]]:
    """Number and raw value of every field: int, float, or bytes."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield number, value
        elif wire == 1:
            yield number, struct.unpack_from("<d", data, position)[0]
            position += 8
        elif wire == 5:
            yield number, struct.unpack_from("<f", data, position)[0]
            position += 4
        elif wire == 2:
            length, position = _varint(data, position)
            if position + length > len(data):
                raise MalformedOnnxError("it is cut off")
            yield number, data[position : position + length]
            position += length
        else:
            raise MalformedOnnxError("it is not protobuf")


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    result = shift = 0
    while shift < 70:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
        shift += 7
    raise MalformedOnnxError("it is not protobuf")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _packed_ints(value: Any) -> list[int]:
    if isinstance(value, int):
        return [_signed(value)]
    found, position = [], 0
    while position < len(value):
        one, position = _varint(value, position)
        found.append(_signed(one))
    return found


def _packed_floats(value: Any) -> list[float]:
    if isinstance(value, float):
        return [value]
    floats: list[float] = np.frombuffer(value, "<f4").tolist()
    return floats


def _text(value: Any) -> str:
    return bytes(value).decode("utf-8")
