"""One model file of each kind that PyTorch and its neighbours write."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn


def save_program(net: nn.Module, path: Path) -> None:
    torch.export.save(torch.export.export(net, (torch.ones(1, 3, 8, 8),)), path)


def write_kind(kind: str, net: nn.Module, path: Path) -> None:
    """One file of that kind."""
    state = net.state_dict()
    if kind == "exported-program":
        with path.open("wb") as file:
            torch.export.save(torch.export.export(net, (torch.ones(1, 3, 8, 8),)), file)
    elif kind == "torchscript":
        torch.jit.save(torch.jit.trace(net, torch.ones(1, 3, 8, 8)), path)
    elif kind == "pickled-module":
        torch.save(net, path)
    elif kind == "legacy-module":
        torch.save(net, path, _use_new_zipfile_serialization=False)
    elif kind == "state-dict":
        torch.save(state, path)
    elif kind == "legacy-state-dict":
        torch.save(state, path, _use_new_zipfile_serialization=False)
    elif kind == "checkpoint":
        torch.save({"state_dict": state, "args": argparse.Namespace(lr=1)}, path)
    elif kind == "safetensors":
        write_safetensors(path, {k: v.numpy() for k, v in state.items()})


def write_safetensors(path: Path, arrays: dict[str, np.ndarray]) -> None:
    import json

    names = {"float32": "F32", "int64": "I64", "float16": "F16"}
    header, data = {}, b""
    for name, array in arrays.items():
        start = len(data)
        data += array.tobytes()
        header[name] = {
            "dtype": names[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, len(data)],
        }
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)
