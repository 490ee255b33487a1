"""Runs the float graph over calibration data and watches its values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from edgectl.errors import UsageError
from edgectl.quantization.observers import RangeObserver
from edgectl.quantization.prepare import module_path

__all__ = ["Sample", "describe_node", "observe"]

Sample = Sequence[torch.Tensor]
"""The inputs of one call of the model, flat, in signature order."""


def describe_node(node: fx.Node) -> str:
    """How a message names a value: its module and its operator."""
    path = module_path(node)
    if node.op != "call_function":
        return f"{node.op} {node.name}"
    return f"{path or node.name} ({str(node.target).removeprefix('aten.').split('.')[0]})"


class _Watcher(fx.Interpreter):
    """An interpreter that shows every watched value to a callback."""

    def __init__(
        self,
        module: fx.GraphModule,
        watched: Collection[fx.Node],
        see: Callable[[fx.Node, Any], None],
    ) -> None:
        super().__init__(module)
        self._watched = set(watched)
        self._see = see

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n in self._watched:
            self._see(n, value)
        return value


def watch(
    module: fx.GraphModule,
    sample: Sample,
    watched: Collection[fx.Node],
    see: Callable[[fx.Node, Any], None],
) -> Any:
    """Runs the graph once; ``see`` gets each watched node and its value. Returns the outputs."""
    watcher = _Watcher(module, watched, see)
    with torch.no_grad():
        return watcher.run(*sample, enable_io_processing=False)


def observe(
    module: fx.GraphModule,
    values: Mapping[fx.Node, fx.Node],
    samples: Iterable[Sample],
    *,
    progress: Callable[[int], None] | None = None,
) -> tuple[dict[fx.Node, RangeObserver], list[str]]:
    """One observer for each group of values, and warnings about the data.

    ``values`` maps each value to watch to the value that stands for its group.

    Raises:
        UsageError: there is no data, all samples are one and the same constant, or a value
            (named by its layer) is NaN or infinite.
    """
    observers = {root: RangeObserver() for root in values.values()}

    def see(node: fx.Node, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            observers[values[node]].observe(value)

    inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
    first: list[torch.Tensor] | None = None
    all_equal, flat, count = True, True, 0
    for sample in samples:
        _check_sample(sample, inputs, count)
        floats = [t for t in sample if t.is_floating_point()]
        if first is None:
            first = [t.clone() for t in sample]
        elif all_equal:
            all_equal = all(torch.equal(a, b) for a, b in zip(first, sample, strict=True))
        flat = flat and bool(floats) and all(_is_constant(t) for t in floats)
        watch(module, sample, values, see)
        count += 1
        if progress is not None:
            progress(count)
    warnings = _check_data(count, flat=flat and bool(inputs), all_equal=all_equal)
    for node, observer in observers.items():
        if not observer.spread.finite:
            raise UsageError(
                f"{describe_node(node)} is NaN or infinite on the calibration data.",
                cause="The model overflows in float32, or the data are not scaled as it expects.",
                next_step="Check the normalisation of the calibration data.",
            )
        spread = observer.spread
        if spread.minimum == spread.maximum and node.op != "get_attr":
            warnings.append(
                f"{describe_node(node)} had the single value {spread.minimum:g} on all "
                "calibration data; its range is a guess."
            )
    return observers, warnings


def _is_constant(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 1 and bool((tensor == tensor.reshape(-1)[0]).all())


def _check_sample(sample: Sample, inputs: list[fx.Node], index: int) -> None:
    if len(sample) != len(inputs):
        raise UsageError(
            f"Calibration sample {index} has {len(sample)} tensors; the model takes {len(inputs)}."
        )
    for tensor, node in zip(sample, inputs, strict=True):
        expected = node.meta["val"]
        if isinstance(expected, torch.Tensor) and not _fits(tensor, expected):
            raise UsageError(
                f"Calibration sample {index} has shape {list(tensor.shape)} and type "
                f"{str(tensor.dtype).removeprefix('torch.')} for input {node.name!r}; the model "
                f"takes {list(expected.shape)} "
                f"{str(expected.dtype).removeprefix('torch.')}.",
            )
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise UsageError(
                f"Calibration sample {index} holds NaN or infinite values in input {node.name!r}."
            )


def _fits(tensor: torch.Tensor, expected: torch.Tensor) -> bool:
    if tensor.dim() != expected.dim() or tensor.dtype != expected.dtype:
        return False
    wanted: list[Any] = list(expected.shape)  # numbers, or symbols of what may vary
    return all(
        not isinstance(want, int) or have == want
        for have, want in zip(tensor.shape, wanted, strict=True)
    )


def _check_data(count: int, *, flat: bool, all_equal: bool) -> list[str]:
    if not count:
        raise UsageError(
            "There are no calibration data, so the ranges of the activations are unknown.",
            next_step="Pass --calibration FOLDER, FILE.npz or FILE.py:FUNCTION "
            "(32 to 256 typical inputs).",
        )
    if flat:
        raise UsageError(
            "Every calibration sample is constant (all its elements are equal).",
            cause="Zeros or a placeholder image stand where real inputs should.",
            next_step="Use inputs as the device will see them.",
        )
    warnings = []
    if count > 1 and all_equal:
        warnings.append(
            f"All {count} calibration samples are the same; the ranges fit that one input only."
        )
    if count < 8:
        warnings.append(
            f"Only {count} calibration sample{'s' if count > 1 else ''}; 32 to 256 are usual."
        )
    return warnings
