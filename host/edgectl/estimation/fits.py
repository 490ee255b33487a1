"""What is known of a model without running it: arithmetic, weights, memory, where it fits.

The memory of the runner was measured on aarch64: 33 MB for Python, NumPy and the IREE runtime, and
10 MB more once a module is loaded. What a board's system leaves to programs is a round figure for
Raspberry Pi OS Lite.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from edgectl.bundle import read_member, read_program
from edgectl.records import Bundle
from edgectl_runner.contract import EntryPoint, TensorSpec
from edgectl_toolchains import load_target, target_names

__all__ = ["Fit", "StaticCost", "static_cost"]

RUNNER_BYTES = 43_000_000
# The system, the firmware's share of the memory and file caches that are in use.
SYSTEM_BYTES = 160_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether a model fits a board with that much memory, with what the system takes."""

    target: str
    memory_mb: int
    free_bytes: int
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticCost:
    """Costs that follow from the compiled module alone.

    ``macs`` are multiply-accumulates of one inference, ``integer_macs`` those on integers.
    ``constant_bytes`` are the weights as the module holds them, ``transient_bytes`` the pool of
    intermediate results that the compiler planned, ``boundary_bytes`` inputs, outputs and states.
    ``needed_bytes`` is the peak memory of the runner with all of that.
    """

    macs: int
    integer_macs: int
    constant_bytes: int
    transient_bytes: int
    boundary_bytes: int
    module_bytes: int
    needed_bytes: int
    fits: tuple[Fit, ...]


def static_cost(bundle: Bundle) -> StaticCost:
    """The static cost of a bundle's first entry point."""
    program = read_program(bundle)
    operators = json.loads(read_member(bundle, "coverage.json"))["operators"]
    module_bytes = bundle.manifest.files[bundle.manifest.module].size_bytes
    boundary = _boundary(bundle.manifest.entry_points[0])
    # Inputs and outputs are there twice: as the caller's arrays and as the runtime's buffers.
    needed = RUNNER_BYTES + module_bytes + program.transient_bytes + 2 * boundary
    return StaticCost(
        macs=sum(int(o["macs"]) for o in operators),
        integer_macs=sum(int(o["macs"]) for o in operators if o["integer"]),
        constant_bytes=program.constant_bytes,
        transient_bytes=program.transient_bytes,
        boundary_bytes=boundary,
        module_bytes=module_bytes,
        needed_bytes=needed,
        fits=tuple(_fits(needed)),
    )


def _fits(needed: int) -> list[Fit]:
    found = []
    for name in target_names():
        target = load_target(name)
        if target.architecture != "aarch64":
            continue
        memory = min(target.memory_mb)
        free = memory * 1_000_000 - SYSTEM_BYTES
        found.append(Fit(target=name, memory_mb=memory, free_bytes=free, fits=needed <= free))
    return sorted(found, key=lambda fit: fit.memory_mb)


def _boundary(entry: EntryPoint) -> int:
    outputs = [o.spec for o in entry.outputs if o.spec is not None]
    return sum(map(_bytes, [*entry.inputs, *outputs, *(s.spec for s in entry.states)]))


def _bytes(spec: TensorSpec) -> int:
    import numpy as np

    elements = 1
    for size in spec.shape:
        elements *= size or 1
    return elements * (2 if spec.dtype == "bfloat16" else np.dtype(spec.dtype).itemsize)
