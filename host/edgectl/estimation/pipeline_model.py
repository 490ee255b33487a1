"""Cycles of straight-line code by llvm-mca, LLVM's model of a core's pipeline.

Every block is modelled as a loop of itself: all of its loads hit the first cache, and branches,
which end a block, are free. Blocks that do not matter (the last half per cent of all instructions)
are taken at the average.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping, Sequence

from edgectl.errors import ConfigurationError
from edgectl.estimation.counting import Counts
from edgectl.estimation.tools import Tools

__all__ = ["cycles_by_dispatch"]

_COVERED = 0.995
_ITERATIONS = 100
_FEATURES = "+v8.2a,+dotprod,+fullfp16,+lse,+crc"
# Calls, returns and the like: llvm-mca has no model of where they go.
_UNMODELLED = re.compile(r"(bl|blr|ret\w*|br\w*|svc|hint|pac\w*|aut\w*)\b")


def cycles_by_dispatch(counts: Counts, core: str, tools: Tools) -> dict[int, float]:
    """Modelled cycles of one inference by dispatch (-1: the runtime around them).

    Args:
        counts: from `count_inference`.
        core: llvm-mca's name of the core.
        tools: where llvm-mca is.

    Raises:
        ConfigurationError: LLVM's tools failed.
    """
    weights = {
        code: len(code) // 8 * sum(numbers.values()) for code, numbers in counts.blocks.items()
    }
    hot: list[str] = []
    covered = 0.0
    for code in sorted(weights, key=lambda c: -weights[c]):
        if covered > _COVERED * counts.instructions:
            break
        covered += weights[code]
        hot.append(code)
    each = dict(zip(hot, _model(hot, core, tools), strict=True))
    modelled = sum(each[code] * sum(counts.blocks[code].values()) for code in hot)
    per_instruction = modelled / covered if covered else 0.0
    cycles: dict[int, float] = {}
    for code, numbers in counts.blocks.items():
        one = each.get(code, per_instruction * (len(code) // 8))
        for index, number in numbers.items():
            cycles[index] = cycles.get(index, 0.0) + one * number
    return cycles


def _model(blocks: Sequence[str], core: str, tools: Tools) -> list[float]:
    lines = _disassemble(blocks, tools)
    source: list[str] = []
    position = 0
    for index, code in enumerate(blocks):
        count = len(code) // 8
        body = lines[position : position + count]
        position += count
        source.append(f"# LLVM-MCA-BEGIN b{index}")
        source += ["nop" if _UNMODELLED.match(line) else line for line in body]
        source.append(f"# LLVM-MCA-END b{index}")
    answer = _run(
        [
            tools.llvm_mca,
            "-mtriple=aarch64",
            f"-mcpu={core}",
            f"-mattr={_FEATURES}",
            f"-iterations={_ITERATIONS}",
            "--json",
            "-instruction-info=0",
            "-resource-pressure=0",
            "-skip-unsupported-instructions=any",
        ],
        "\n".join(source) + "\n",
    )
    regions: list[Mapping[str, object]] = json.loads(answer)["CodeRegions"]
    cycles: dict[str, float] = {}
    for region in regions:
        summary = region["SummaryView"]
        if isinstance(summary, dict):
            cycles[str(region["Name"])] = float(summary["TotalCycles"]) / _ITERATIONS
    return [cycles.get(f"b{index}", 0.0) for index in range(len(blocks))]


def _disassemble(blocks: Sequence[str], tools: Tools) -> list[str]:
    """The instructions of all blocks, one line for each word; what is none becomes ``nop``."""
    words = [code[i : i + 8] for code in blocks for i in range(0, len(code), 8)]
    known = list(dict.fromkeys(words))
    lines = _instructions(known, tools)
    if len(lines) != len(known):  # a word was not understood and left out: find out which
        lines = [next(iter(_instructions([word], tools)), "nop") for word in known]
    text = dict(zip(known, lines, strict=True))
    return [text[word] for word in words]


def _instructions(words: Sequence[str], tools: Tools) -> list[str]:
    source = "".join(
        " ".join(f"0x{word[6 - 2 * i : 8 - 2 * i]}" for i in range(4)) + "\n" for word in words
    )
    command = [tools.llvm_mc, "--disassemble", "--triple=aarch64", f"--mattr={_FEATURES}"]
    lines = [line.strip() for line in _run(command, source).splitlines()]
    return [line for line in lines if line and not line.startswith(".")]


def _run(command: Sequence[str], source: str) -> str:
    run = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if run.returncode != 0 or not run.stdout:
        words = run.stderr.strip().splitlines()
        raise ConfigurationError(
            f"{command[0]} failed: {words[0][:200] if words else 'no reason given'}",
            cause="This LLVM does not know the core, or is of a version with other options.",
            next_step="sudo apt-get install llvm-19",
        )
    return run.stdout
