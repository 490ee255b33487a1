"""``.onnx``, read without the onnx package and computed by PyTorch.

Opsets 9 to 23. Where ONNX Runtime is installed, its outputs are compared with PyTorch's before
anything is compiled.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import torch

from edgectl.errors import UnsupportedModelError, UsageError
from edgectl.sources.examples import example_array
from edgectl.sources.input_specs import InputSpec
from edgectl.sources.loaded import Arguments, Loaded
from edgectl.sources.onnx_graph import OnnxModule
from edgectl.sources.onnx_wire import MalformedOnnxError, Port, read_onnx
from edgectl.sources.options import GivenInput, LoadOptions
from edgectl.sources.source_file import SourceFile
from edgectl.sources.tensors import from_tensor, shape_text, to_tensor

__all__ = ["OnnxFile"]

_OPSETS = range(9, 24)
_TOLERANCE = 1e-3


class OnnxFile:
    """A graph of ONNX operators; it cannot run code."""

    name = "onnx"
    title = "an ONNX model"
    runs_code = False

    def detect(self, file: SourceFile) -> bool:
        """Field 1 (the IR version) first, then text fields or the graph."""
        head = file.head
        return len(head) > 4 and head[0] == 0x08 and 1 <= head[1] < 32 and head[2] in _FIELDS

    def load(self, file: SourceFile, options: LoadOptions) -> Loaded:
        """Parses the graph and makes a module of it for the shapes that are asked for."""
        try:
            model = read_onnx(file.path.read_bytes())
        except MalformedOnnxError as error:
            raise UsageError(
                f"{file.path} cannot be read as ONNX: {error}.",
                cause=f"It is damaged or cut off ({file.size} bytes, sha256 {file.sha256}).",
                next_step="Compare size and sha256 with the original, and download it again.",
            ) from error
        if model.opset not in _OPSETS:
            raise UnsupportedModelError(
                f"{file.path} is of ONNX opset {model.opset}; edgectl reads {_OPSETS[0]} to "
                f"{_OPSETS[-1]}.",
                next_step="Convert it with onnx.version_converter.convert_version(model, 17).",
            )
        weights = model.graph.weights
        ports = [port for port in model.graph.inputs if port.name not in weights]
        arrays = _arrays(ports, options)
        examples = [to_tensor(array) for array in arrays]
        module = OnnxModule(model, examples).eval()
        notes = [_checked(file, module, examples, ports)]
        if not options.inputs:
            notes.append("compared on random inputs; --input gives real ones")
        return Loaded(
            name=file.path.stem,
            module=module,
            example=Arguments(args=tuple(examples)),
            names=tuple(port.name for port in ports),
            notes=tuple(notes),
        )


_FIELDS = (0x12, 0x1A, 0x22, 0x2A, 0x32, 0x3A, 0x42)


def _arrays(ports: list[Port], options: LoadOptions) -> list[np.ndarray]:
    specs = {spec.name: spec for spec in options.input_specs if spec.name}
    positional = iter([spec for spec in options.input_specs if not spec.name])
    given = {item.name: item for item in options.inputs if item.name}
    unnamed = iter([item for item in options.inputs if item.name is None])
    names = [port.name for port in ports]
    for name in (*specs, *given):
        if name not in names:
            raise UsageError(
                f"The model has no input {name!r}.", next_step=f"It has: {', '.join(names)}."
            )
    arrays = []
    for number, port in enumerate(ports):
        spec = specs.get(port.name) or next(positional, None)
        item = given.get(port.name) or next(unnamed, None)
        arrays.append(_array(port, spec, item, options, number))
    if next(positional, None) is not None or next(unnamed, None) is not None:
        raise UsageError(
            f"More inputs were given than the model takes: {', '.join(names)}.",
            next_step="Give one per input, in that order, or name them.",
        )
    return arrays


def _array(
    port: Port, spec: InputSpec | None, item: GivenInput | None, options: LoadOptions, number: int
) -> np.ndarray:
    shape: tuple[int | str | None, ...] = spec.shape if spec else port.shape
    open_sizes = [size for size in shape if not isinstance(size, int)]
    if item is not None:
        sizes = [size if isinstance(size, int) else None for size in shape]
        sizes = [1, *sizes[1:]] if len(sizes) == 4 and sizes[0] is None else sizes
        array = item.fitted(sizes, port.dtype)
        same = array.ndim == len(shape) and all(
            not isinstance(wanted, int) or wanted == size
            for wanted, size in zip(shape, array.shape, strict=True)
        )
        if not same or array.dtype.name != port.dtype:
            wanted = "x".join([*map(str, shape), port.dtype])
            raise UsageError(
                f"Input {port.name!r} is {shape_text(array)}; the model takes {wanted}.",
                next_step="Bring the input into that shape and dtype.",
            )
        return array
    if open_sizes:
        example = "x".join(["1" if not isinstance(s, int) else str(s) for s in shape])
        raise UsageError(
            f"Input {port.name!r} of the model has sizes without a value: "
            f"{'x'.join(str(size) for size in shape)}.",
            cause="ONNX models are compiled for fixed shapes.",
            next_step=f"Add --input-spec {port.name}={example}xf32 with the sizes you want.",
        )
    if spec is not None and spec.dtype != port.dtype:
        raise UsageError(
            f"--input-spec says {spec.dtype} for {port.name!r}; the model takes {port.dtype}.",
            next_step="Correct the spec.",
        )
    fixed = InputSpec(name=port.name, shape=shape, dtype=port.dtype)
    return example_array(fixed, (), seed=options.seed + number)


def _checked(
    file: SourceFile, module: OnnxModule, examples: list[torch.Tensor], ports: list[Port]
) -> str:
    """Compares with ONNX Runtime, if it is here; the note says which."""
    if importlib.util.find_spec("onnxruntime") is None:
        return "computed by PyTorch (ONNX Runtime is not installed to compare with)"
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(file.path), settings, providers=["CPUExecutionProvider"]
    )
    feeds = {port.name: from_tensor(value) for port, value in zip(ports, examples, strict=True)}
    with torch.no_grad():
        ours: dict[str, Any] = module(*examples)
    theirs = session.run(module.output_names, feeds)
    for name, wanted in zip(module.output_names, theirs, strict=True):
        got = from_tensor(ours[name])
        scale = float(np.max(np.abs(wanted), initial=0.0)) or 1.0
        if got.shape != wanted.shape or not np.allclose(
            got, wanted, rtol=_TOLERANCE, atol=_TOLERANCE * scale, equal_nan=True
        ):
            raise UnsupportedModelError(
                f"Output {name!r} of {file.path} comes out otherwise here than in ONNX Runtime.",
                cause="An operator of the model is read wrongly; this is a fault of edgectl.",
                next_step="Export the model from PyTorch with torch.export.save instead.",
            )
    return f"same numbers as ONNX Runtime {onnxruntime.__version__}"
