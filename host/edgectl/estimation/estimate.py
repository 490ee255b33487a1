"""The estimate of a bundle: exact counts, models of pipeline and memory, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass

from edgectl.bundle import read_program
from edgectl.errors import UsageError
from edgectl.estimation.counting import count_inference
from edgectl.estimation.fits import StaticCost, static_cost
from edgectl.estimation.guest import make_guest
from edgectl.estimation.memory_model import (
    DEFAULT_WEIGHTS,
    CostTerms,
    Weights,
    cycles_of,
    dram_bytes,
    terms_of,
)
from edgectl.estimation.pipeline_model import cycles_by_dispatch
from edgectl.estimation.tools import find_tools
from edgectl.hooks import Hooks
from edgectl.records import Bundle, DispatchCall
from edgectl.settings import Settings, load_settings
from edgectl_toolchains import Target, load_target

__all__ = ["Estimate", "LayerEstimate", "estimate_bundle", "weights_for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerEstimate:
    """One dispatch of one inference.

    ``instructions`` is exact, ``pipeline_cycles`` is llvm-mca's figure (no cache misses),
    ``dram_bytes`` from the simulated caches, ``cycles`` all of them together.
    """

    call: DispatchCall
    instructions: float
    pipeline_cycles: float
    cycles: float
    dram_bytes: int
    terms: CostTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one inference is modelled to cost on one core of a board. Never a measurement.

    The totals hold the runtime around the dispatches too. ``calibrated`` says where the weights
    come from: a board's profile, or rules of thumb (``None``).
    """

    target: str
    static: StaticCost
    instructions: float
    pipeline_cycles: float
    cycles: float
    milliseconds: float
    runtime_cycles: float
    layers: tuple[LayerEstimate, ...]
    weights: Weights
    calibrated: str | None


def weights_for(target: Target) -> Weights:
    """The rules of thumb for a board's core."""
    return DEFAULT_WEIGHTS.get(target.cpu, DEFAULT_WEIGHTS["cortex-a72"])


def estimate_bundle(
    bundle: Bundle,
    *,
    weights: Weights | None = None,
    calibrated: str | None = None,
    settings: Settings | None = None,
    hooks: Hooks | None = None,
) -> Estimate:
    """Estimates a bundle for the board that it was compiled for, on one core.

    Args:
        bundle: what to estimate; its first golden call is run.
        weights: of the memory model; the core's rules of thumb by default.
        calibrated: what the weights were fitted to.
        settings: where caches are.
        hooks: told about the steps.

    Raises:
        UsageError: the bundle is not for aarch64.
        ConfigurationError: qemu, LLVM's tools or the runtime's wheels are missing.
        EdgectlError: the module does not run under qemu.
    """
    settings = settings or load_settings()
    hooks = hooks or Hooks()
    target = load_target(bundle.manifest.target)
    if target.architecture != "aarch64" or not target.pipeline_model:
        raise UsageError(
            f"There is no model of {target.name}'s core.",
            cause="Estimates are made for the boards whose file names a pipeline_model.",
            next_step="edgectl estimate MODEL --target rpi4",
        )
    weights = weights or weights_for(target)
    tools = find_tools(settings.cache_dir)
    with hooks.step("prepare the emulated userland"):
        guest = make_guest(tools, target.cpu, settings)
    program = read_program(bundle)
    with hooks.step(f"count one inference on an emulated {target.cpu}"):
        counts = count_inference(bundle, program, target, guest)
    with hooks.step(f"model {target.pipeline_model}'s pipeline"):
        cycles = cycles_by_dispatch(counts, target.pipeline_model, tools)
    instructions = [0.0] * len(counts.symbols)
    for code, numbers in counts.blocks.items():
        for index, number in numbers.items():
            if index >= 0:
                instructions[index] += number * (len(code) // 8)
    calls = calls_in_order(program.calls, counts.symbols)
    layers = []
    for index, call in enumerate(calls):
        terms = terms_of(cycles.get(index, 0.0), counts.traffic[index], target)
        layers.append(
            LayerEstimate(
                call=call,
                instructions=instructions[index],
                pipeline_cycles=terms.pipeline,
                cycles=cycles_of(terms, weights),
                dram_bytes=dram_bytes(counts.traffic[index]),
                terms=terms,
            )
        )
    runtime = cycles.get(-1, 0.0)
    total = sum(layer.cycles for layer in layers) + runtime
    return Estimate(
        target=target.name,
        static=static_cost(bundle),
        instructions=counts.instructions,
        pipeline_cycles=sum(cycles.values()),
        cycles=total,
        milliseconds=total / (target.clock_mhz * 1e3),
        runtime_cycles=runtime,
        layers=tuple(layers),
        weights=weights,
        calibrated=calibrated,
    )


def calls_in_order(
    calls: tuple[DispatchCall, ...], symbols: tuple[str, ...]
) -> tuple[DispatchCall, ...]:
    """The program's call behind each dispatch that ran, told apart by name and then by order."""
    waiting: dict[str, list[DispatchCall]] = {}
    found = []
    for symbol in symbols:
        if not waiting.get(symbol):  # at first, and when a loop of the program comes again
            waiting[symbol] = [c for c in calls if c.symbol == symbol and c.function]
        queue = waiting[symbol]
        found.append(queue.pop(0) if queue else _nameless(symbol))
    return tuple(found)


def _nameless(symbol: str) -> DispatchCall:
    return DispatchCall(
        function="main",
        symbol=symbol,
        module="",
        operator="",
        nodes=(),
        read_bytes=0,
        written_bytes=0,
    )
