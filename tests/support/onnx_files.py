"""Writes ONNX files without the onnx package."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np

WEIGHT = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: Any) -> bytes:
    """One protobuf field: bytes, text, int or float."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(value)


def attribute(name: str, value: Any) -> bytes:
    body = field(1, name)
    if isinstance(value, list):
        body += b"".join(field(8, item) for item in value) + field(20, 7)
    elif isinstance(value, float):
        body += field(2, value) + field(20, 1)
    else:
        body += field(3, value) + field(20, 2)
    return field(5, body)


def node(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> bytes:
    body = b"".join(field(1, name) for name in inputs)
    body += b"".join(field(2, name) for name in outputs)
    body += field(3, f"/{outputs[0]}/{kind}") + field(4, kind)
    return field(1, body + b"".join(attribute(k, v) for k, v in attributes.items()))


def weight(name: str, array: np.ndarray) -> bytes:
    dims = b"".join(field(1, size) for size in array.shape)
    kind = {"float32": 1, "int64": 7}[array.dtype.name]
    return field(5, dims + field(2, kind) + field(8, name) + field(9, array.tobytes()))


def port(number: int, name: str, shape: list[int | str]) -> bytes:
    dims = b"".join(
        field(1, field(1, size) if isinstance(size, int) else field(2, size)) for size in shape
    )
    return field(number, field(1, name) + field(2, field(1, field(1, 1) + field(2, dims))))


def onnx_model(path: Path, *, opset: int = 17, batch: int | str = 1, extra: bytes = b"") -> Path:
    """conv -> relu -> a reshape whose shape is computed from the input's shape."""
    graph = b"".join(
        [
            node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1], group=1),
            node("Relu", ["c"], ["r"]),
            node("Shape", ["r"], ["s"]),
            node("Gather", ["s", "zero"], ["n"], axis=0),
            node("Unsqueeze", ["n", "axes"], ["n1"]),
            node("Concat", ["n1", "rest"], ["to"], axis=0),
            node("Reshape", ["r", "to"], ["y"]),
            extra,
            weight("w", WEIGHT),
            weight("zero", np.array(0, dtype=np.int64)),
            weight("axes", np.array([0], dtype=np.int64)),
            weight("rest", np.array([-1], dtype=np.int64)),
            port(11, "x", [batch, 3, 8, 8]),
            port(12, "y", [batch, 64]),
        ]
    )
    path.write_bytes(field(1, 8) + field(2, "test") + field(7, graph) + field(8, field(2, opset)))
    return path
