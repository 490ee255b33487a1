"""The frozen records that flow through the stages, one way.

    path -> ExportedModel -> [QuantizedModel] -> LoweredModule -> CompiledModule -> Bundle
            sources          quantization        lowering         codegen          bundle

A record carries what a later stage or a reader needs to trust it. Nothing here imports torch at
run time, so that the command line can name these types without paying for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgectl_runner.contract import EntryPoint, GoldenLimits, Manifest, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from torch.export import ExportedProgram

    from edgectl_toolchains import Target

__all__ = [
    "Bundle",
    "CompiledModule",
    "Coverage",
    "Dialect",
    "DispatchCall",
    "ExampleCall",
    "ExportedModel",
    "ImportedModule",
    "KernelChoice",
    "LoweredModule",
    "OperatorVerdict",
    "Program",
    "QuantizedModel",
    "TensorSpec",
    "Where",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleCall:
    """Inputs of one call and what eager PyTorch answered; flat, in signature order.

    ``outputs`` holds arrays, and Python literals (``None``, bool, int, float, str) where the
    model returns them.
    """

    inputs: tuple[np.ndarray, ...]
    outputs: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModule:
    """A model that came as MLIR (TFLite, TOSA): IREE-readable bytecode with one public function.

    Its arguments are `ExportedModel.inputs`, its results `ExportedModel.output_names`, in order.
    """

    dialect: Dialect
    bytecode: bytes
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedModel:
    """A model as torch.export sees it, with the calls it will be judged by.

    ``program`` is at ATen level and not yet decomposed. ``inputs`` and ``output_names`` are flat
    (pytrees are spelled with dots: ``boxes.0``). ``calls`` are successive calls made on the
    original model in eager mode (at least three when it keeps state), the ground truth for
    everything after. ``digest`` identifies the source (file bytes, or parameters and graph).

    A model that is not a PyTorch program has ``imported`` instead: ``program`` is ``None`` then,
    ``calls`` were made by the format's own runtime, and it can be lowered but not quantized.
    """

    name: str
    source_kind: str
    digest: str
    program: ExportedProgram
    inputs: tuple[TensorSpec, ...]
    output_names: tuple[str, ...]
    calls: tuple[ExampleCall, ...]
    notes: tuple[str, ...] = ()
    imported: ImportedModule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedModel:
    """A model whose program holds quantize/dequantize pairs, and what it was made from.

    ``model.calls`` hold the outputs of the *fake-quantized* program (what the device is compared
    with bit-near); ``float_model`` keeps the fp32 outputs, so that quantization error and
    code-generation error can be told apart.
    """

    model: ExportedModel
    float_model: ExportedModel
    recipe_name: str
    recipe: Mapping[str, Any]
    report: Mapping[str, Any] = field(default_factory=dict)
    limits: GoldenLimits = field(default_factory=GoldenLimits)


class Dialect(StrEnum):
    """The MLIR dialect in which a module is handed to IREE."""

    TOSA = "tosa"
    LINALG = "linalg"
    STABLEHLO = "stablehlo"
    TORCH = "torch"


class Where(StrEnum):
    """Where an operation of the program went."""

    TOSA = "tosa"
    FALLBACK = "fallback"  # another dialect, in the same module where possible
    FOLDED = "folded"  # computed at compile time, or no code at all (views)
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorVerdict:
    """One operation of the program: its module, where it went, and why.

    ``module`` is the dotted module path (``features.3.conv.1``); ``macs`` counts
    multiply-accumulates; ``integer`` says that they run on integers.
    """

    node: str
    module: str
    operator: str
    where: Where
    dialect: str = ""
    reason: str = ""
    macs: int = 0
    integer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """A verdict on every operation of the program, in program order."""

    operators: tuple[OperatorVerdict, ...]

    def refused(self) -> tuple[OperatorVerdict, ...]:
        """The operations that nothing here can compile."""
        return tuple(v for v in self.operators if v.where is Where.REFUSED)

    def fallbacks(self) -> tuple[OperatorVerdict, ...]:
        """The operations that left TOSA."""
        return tuple(v for v in self.operators if v.where is Where.FALLBACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredModule:
    """MLIR bytecode for IREE, with its signature at the boundary and its coverage.

    ``bytecode`` may hold several functions; ``entry_points`` describes each. ``initial_states``
    holds the first value of each state by `StateSpec.initial`. Locations in the bytecode carry
    ``module|operator`` names, so that a profile can say which layer costs what.
    """

    model: ExportedModel
    dialect: Dialect
    bytecode: bytes
    entry_points: tuple[EntryPoint, ...]
    initial_states: Mapping[str, np.ndarray]
    coverage: Coverage
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelChoice:
    """One dispatch and the microkernel that computes it (or why the compiler's code does)."""

    dispatch: str
    kernel: str
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchCall:
    """One dispatch that a function of the module makes, and the operations that it computes.

    ``symbol`` is its name in the module; equal work shares one, so several calls may have it.
    ``function`` is the caller, empty for what runs once when the module is loaded. ``module``
    and ``operator`` name the operation with the most multiply-accumulates, ``nodes`` all of them.
    ``read_bytes`` and ``written_bytes`` are the sizes of its operands and results: the least that
    must move.
    """

    function: str
    symbol: str
    module: str
    operator: str
    nodes: tuple[str, ...]
    read_bytes: int
    written_bytes: int
    macs: int = 0
    integer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A compiled module's dispatches in call order, and the memory that it asks for.

    ``constant_bytes`` are its weights, ``transient_bytes`` the pool that one call allocates.
    """

    calls: tuple[DispatchCall, ...] = ()
    constant_bytes: int = 0
    transient_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledModule:
    """A ``.vmfb`` for one target, with everything that made it."""

    lowered: LoweredModule
    target: Target
    vmfb: bytes
    flags: tuple[str, ...]
    tools: Mapping[str, str]
    kernels: tuple[KernelChoice, ...] = ()
    program: Program = field(default_factory=Program)
    cached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle file on this computer and its manifest; ``digest`` is the manifest's sha256."""

    path: Path
    digest: str
    manifest: Manifest
