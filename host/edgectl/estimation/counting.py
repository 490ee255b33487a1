"""Counts what one inference executes under qemu, dispatch by dispatch.

Two runs: a plain one says in which order the module's dispatches run and in how many workgroups;
the second one, with our plugin, counts by that plan. Counts are exact; nothing here is a time.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgectl.bundle import read_member
from edgectl.errors import EdgectlError, OutputMismatchError
from edgectl.estimation.guest import Guest
from edgectl.estimation.libraries import Library, find_libraries
from edgectl.profiling.trace import DispatchEvent, read_trace
from edgectl.records import Bundle, Program
from edgectl_toolchains import Target

__all__ = ["Counts", "MemoryTraffic", "count_inference", "parse_counts"]

INFERENCES = 2
# Runs in the guest: the real runner's engine, as on a device, marked for the plugin.
_GUEST_PROGRAM = """
import os, sys
from pathlib import Path
from edgectl_runner.contract import Manifest, from_document
from edgectl_runner.execution import check_golden, load_engine
from edgectl_runner.tensors import load_npy
import gc, json
def mark(number):
    try:
        os.getpriority(os.PRIO_PROCESS, 0x45444700 + number)
    except OSError:
        pass
folder = Path(sys.argv[1])
manifest = from_document(Manifest, json.loads((folder / "manifest.json").read_text()))
golden = manifest.golden[0]
entry = manifest.entry_points[golden.entry_point]
engine = load_engine(manifest, folder, entry, 1)
specs = entry.inputs
call = engine.prepare([load_npy(folder / n, s) for n, s in zip(golden.inputs, specs)])
wrong = [c for c in check_golden(manifest, folder, engine, golden.entry_point) if not c.passed]
engine.reset()
if wrong:
    print("WRONG", json.dumps([wrong[0].name, wrong[0].max_relative_error]))
    sys.exit(0)
gc.collect()
gc.disable()
mark(1)
for _ in range(int(sys.argv[2])):
    engine.call(call)
mark(2)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTraffic:
    """Accesses of the dispatches' code, by a simulation of the core's caches.

    ``misses`` has a count for each level, the nearest first; ``writebacks`` are dirty lines that
    left the last one. Lines have 64 bytes.
    """

    loads: int
    stores: int
    misses: tuple[int, ...]
    writebacks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What one inference executes.

    ``blocks`` maps straight-line code (its instructions' words, hexadecimal) to executions:
    index -1 for the runtime around the dispatches, else the dispatch's place in ``symbols``.
    """

    symbols: tuple[str, ...]
    blocks: Mapping[str, Mapping[int, float]]
    traffic: tuple[MemoryTraffic, ...]
    instructions: float = field(default=0.0)


def count_inference(bundle: Bundle, program: Program, target: Target, guest: Guest) -> Counts:
    """Compares the bundle's golden calls under qemu, then runs the first one and counts it.

    Raises:
        OutputMismatchError: an output is not what PyTorch computes.
        EdgectlError: the module does not run, or not as its profile said.
    """
    with tempfile.TemporaryDirectory(prefix="edgectl-estimate-") as name:
        folder = Path(name)
        for member in bundle.manifest.files:
            file = folder / "bundle" / member
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(read_member(bundle, member))
        _write_manifest(bundle, folder / "bundle")
        steps = _schedule(bundle, program, folder, guest)
        vmfb = (folder / "bundle" / bundle.manifest.module).read_bytes()
        libraries = find_libraries(vmfb, frozenset(step.symbol for step in steps))
        plan = folder / "plan"
        plan.write_text(_plan(libraries, steps, target, folder))
        code = folder / "program.py"
        code.write_text(_GUEST_PROGRAM)
        out = folder / "counts"
        said = guest.run(
            [guest.python, code, folder / "bundle", str(INFERENCES)],
            plugin={"plan": plan, "out": out},
        )
        if said.startswith("WRONG "):
            name, error = json.loads(said.removeprefix("WRONG "))
            raise OutputMismatchError(
                f"The module does not compute what PyTorch computes: output {name!r} differs by "
                f"{error:.2g} of its largest value. There is no estimate of a wrong program.",
                cause="The compiler or the runtime produced wrong code for this model.",
                next_step="Try --no-kernels, then --dialect linalg; then report it.",
            )
        text = out.read_text() if out.exists() else ""
    return parse_counts(text, tuple(s.symbol for s in steps), inferences=INFERENCES)


def parse_counts(text: str, symbols: Sequence[str], *, inferences: int) -> Counts:
    """What the plugin wrote.

    Raises:
        EdgectlError: it is cut short, or the program did something else than was planned.
    """
    blocks: dict[str, Counter[int]] = {}
    traffic: list[MemoryTraffic] = []
    instructions = 0.0
    lines = text.splitlines()
    if not lines or lines[-1] != "end":
        raise _miscounted("the emulated run ended before it was counted")
    for line in lines[:-1]:
        kind, *words = line.split()
        if kind == "wrong":
            raise _miscounted(line.removeprefix("wrong "))
        if kind == "step":
            loads, stores, *misses, writebacks = (int(w) // inferences for w in words[1:])
            traffic.append(
                MemoryTraffic(
                    loads=loads, stores=stores, misses=tuple(misses), writebacks=writebacks
                )
            )
            continue
        code, outside, *inside = words
        counts = blocks.setdefault(code, Counter())
        found = {
            -1: int(outside),
            **{int(i): int(n) for i, _, n in (w.partition(":") for w in inside)},
        }
        for index, number in found.items():
            if number:
                counts[index] += number
                instructions += number * (len(code) // 8) / inferences
    return Counts(
        symbols=tuple(symbols),
        blocks={
            code: {index: number / inferences for index, number in counts.items()}
            for code, counts in blocks.items()
        },
        traffic=tuple(traffic),
        instructions=instructions,
    )


def _write_manifest(bundle: Bundle, folder: Path) -> None:
    with zipfile.ZipFile(bundle.path) as archive:
        (folder / "manifest.json").write_bytes(archive.read("manifest.json"))


def _schedule(bundle: Bundle, program: Program, folder: Path, guest: Guest) -> list[DispatchEvent]:
    """The dispatches of one inference in the order in which they run."""
    golden = bundle.manifest.golden[0]
    entry = bundle.manifest.entry_points[golden.entry_point]
    trace = folder / "schedule.ireeprof"
    files = [*golden.inputs, *(state.initial for state in entry.states)]
    guest.run(
        [
            guest.runtime_tool("iree-benchmark-module"),
            f"--module={folder}/bundle/{bundle.manifest.module}",
            "--device=local-sync",
            f"--function={entry.function}",
            *(f"--input=@{folder}/bundle/{name}" for name in files),
            "--benchmark_min_time=1x",
            "--device_profiling_mode=queue-events,host-execution",
            f"--device_profiling_output={trace}",
        ]
    )
    once = Counter(c.symbol for c in program.calls if not c.function)
    steps = []
    for event in read_trace(trace):
        if once[event.symbol] > 0:
            once[event.symbol] -= 1
        else:
            steps.append(event)
    return steps


def _plan(
    libraries: Sequence[Library], steps: Sequence[DispatchEvent], target: Target, folder: Path
) -> str:
    lines = []
    for index, library in enumerate(libraries):
        file = folder / f"text-{index}"
        file.write_bytes(library.text)
        lines.append(f"library {library.text_offset} {file}")
        lines += [f"entry {offset}" for offset in sorted(set(library.functions.values()))]
    for step in steps:
        index = next(i for i, lib in enumerate(libraries) if step.symbol in lib.functions)
        offset = libraries[index].functions[step.symbol]
        lines.append(f"step {index} {offset} {step.workgroups}")
    for cache in target.caches:
        lines.append(f"cache {cache.ways} {cache.sets}")
    return "\n".join(lines) + "\n"


def _miscounted(reason: str) -> EdgectlError:
    return EdgectlError(
        f"The emulated run was not counted: {reason}.",
        cause="The program takes another way each time, or the plugin does not know its code.",
        next_step="Estimate with --static, and please report it with the model.",
    )
