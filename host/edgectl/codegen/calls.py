"""Which operations of the model each dispatch computes, read from the compiler half way.

Lowering gives every operation a location ``module|operator|node``. IREE keeps locations up to its
flow phase, where the program is a list of dispatches in call order; later phases and the module
itself know only ordinals and shapes. So the compiler is stopped there, the list is read, and the
compilation goes on from the very same bytes: the module comes out byte for byte as in one go.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from edgectl.records import Coverage, DispatchCall, Program

__all__ = ["compile_with_program", "without_macs"]

_TO_FLOW = ("--compile-to=flow", "--emit-mlir-bytecode")
_NODE = re.compile(r'"([^"|]*)\|([^"|]*)\|([^"|]*)":\d+:\d+')
_CALLER = re.compile(r' at "[^"]*":\d+:\d+')
_ARITHMETIC = re.compile(r"conv|matmul|mmt4d|matvec|vecmat|contract|dot|pooling")
_BITS = re.compile(r"[a-z]+(\d+)")


def compile_with_program(
    module: bytes,
    flags: Sequence[str],
    coverage: Coverage,
    *,
    run_compiler: Callable[[bytes, Sequence[str]], bytes],
) -> tuple[bytes, Program]:
    """Compiles in two steps and reads between them what the module is made of.

    Args:
        module: MLIR that ``iree-compile`` reads.
        flags: its flags.
        coverage: the operations of the model with their multiply-accumulates.
        run_compiler: runs ``iree-compile`` over a module with flags.

    Returns:
        The ``.vmfb``, and its dispatches in call order with the memory that it asks for.

    Raises:
        CompileError: the compiler refused.
    """
    flow = run_compiler(module, (*flags, *_TO_FLOW))
    calls = _with_macs(read_calls(flow), coverage)
    with tempfile.TemporaryDirectory(prefix="edgectl-statistics-") as folder:
        file = Path(folder) / "statistics.json"
        vmfb = run_compiler(
            flow,
            (
                *flags,
                "--compile-from=flow",
                f"--iree-scheduling-dump-statistics-file={file}",
                "--iree-scheduling-dump-statistics-format=json",
            ),
        )
        constants, transient = _memory(file)
    return vmfb, Program(calls=calls, constant_bytes=constants, transient_bytes=transient)


def read_calls(flow: bytes) -> tuple[DispatchCall, ...]:
    """The dispatches of a module in the flow phase, in program order; none if it cannot be read."""
    from iree.compiler import ir

    with ir.Context(), ir.Location.unknown():
        try:
            module = ir.Module.parse(flow)
        except ir.MLIRError:
            return ()
        found: list[tuple[str, Any]] = []
        inside: dict[str, str] = {}
        for view in module.body.operations:
            operation = view.operation
            if operation.name == "flow.executable":
                inside[_text(operation, "sym_name")] = _locations_inside(operation)
            elif operation.name in ("util.func", "util.initializer"):
                name = _text(operation, "sym_name") if operation.name == "util.func" else ""
                found += [(name, dispatch) for dispatch in _dispatches(operation)]
        symbols = [_symbol(dispatch) for _, dispatch in found]
        return tuple(
            _call(function, dispatch, symbol, inside.get(symbol[0], ""), symbols.count(symbol))
            for (function, dispatch), symbol in zip(found, symbols, strict=True)
        )


def without_macs(coverage: Coverage, calls: Sequence[DispatchCall]) -> int:
    """Multiply-accumulates of the model that no dispatch was found for (folded at compile time)."""
    return sum(v.macs for v in coverage.operators) - sum(c.macs for c in calls)


def _call(
    function: str, dispatch: Any, symbol: tuple[str, str], inside: str, uses: int
) -> DispatchCall:
    # The body of a dispatch that several calls share names only the operations of one of them.
    words = str(dispatch.location) + (inside if uses == 1 else "")
    nodes = {match[2]: (match[0], match[1]) for match in _NODE.findall(_CALLER.sub("", words))}
    module, operator = next(iter(nodes.values()), ("", ""))
    return DispatchCall(
        function=function,
        symbol=symbol[1],
        module=module,
        operator=operator,
        nodes=tuple(nodes),
        read_bytes=sum(_tensor_bytes(value) for value in _read(dispatch)),
        written_bytes=sum(_tensor_bytes(value) for value in dispatch.results),
    )


def _with_macs(calls: Sequence[DispatchCall], coverage: Coverage) -> tuple[DispatchCall, ...]:
    """Gives each call the multiply-accumulates of its operations, and the name of the dearest.

    An operation that no location names (it was rewritten into something else) belongs to the
    dispatch that ends soonest after it in the program.
    """
    position = {v.node: i for i, v in enumerate(coverage.operators)}
    ends = [max((position.get(n, -1) for n in call.nodes), default=-1) for call in calls]
    owners: dict[str, int] = {}
    for arithmetic in (False, True):  # a transpose carries the name of the product it is made for
        for i, call in reversed(list(enumerate(calls))):
            if bool(_ARITHMETIC.search(call.symbol)) is arithmetic:
                owners.update(dict.fromkeys(call.nodes, i))
    macs = [0] * len(calls)
    dearest: list[int | None] = [None] * len(calls)
    for index, verdict in enumerate(coverage.operators):
        if not verdict.macs:
            continue
        owner = owners.get(verdict.node)
        if owner is None:
            after = [(end, i) for i, end in enumerate(ends) if end >= index and not macs[i]]
            if not after:
                continue
            owner = min(after)[1]
        macs[owner] += verdict.macs
        best = dearest[owner]
        if best is None or coverage.operators[best].macs < verdict.macs:
            dearest[owner] = index
    result = []
    for call, count, best in zip(calls, macs, dearest, strict=True):
        if best is None:
            named = [coverage.operators[position[n]] for n in call.nodes if n in position]
            last = max(named, key=lambda v: position[v.node], default=None)
        else:
            last = coverage.operators[best]
        result.append(
            dataclasses.replace(
                call,
                macs=count,
                module=call.module if last is None else last.module,
                operator=call.operator if last is None else last.operator,
                integer=last is not None and last.integer,
            )
        )
    return tuple(result)


def _dispatches(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for view in block.operations:
                if view.operation.name == "flow.dispatch":
                    yield view.operation
                else:
                    yield from _dispatches(view.operation)


def _locations_inside(executable: Any) -> str:
    found: list[str] = []

    def note(operation: Any) -> None:
        # Equal fills and constants become one, which keeps the name of its first user only.
        counts = operation.name.startswith(("linalg.", "iree_linalg_ext.", "arith.", "math."))
        if counts and operation.name not in ("linalg.fill", "linalg.index", "arith.constant"):
            found.append(str(operation.location))
        for region in operation.regions:
            for block in region.blocks:
                for view in block.operations:
                    note(view.operation)

    note(executable)
    return " ".join(found)


def _read(dispatch: Any) -> list[Any]:
    """The operands, without those that are only there to be written into."""
    tied = {int(index) for index in re.findall(r"-?\d+", _tied(dispatch))}
    return [value for index, value in enumerate(dispatch.operands) if index not in tied]


def _tied(dispatch: Any) -> str:
    if "tied_operands" not in dispatch.attributes:
        return ""
    return str(dispatch.attributes["tied_operands"]).replace(": index", "")


def _symbol(dispatch: Any) -> tuple[str, str]:
    """Executable and function of the dispatch's first entry point."""
    text = str(dispatch.attributes["entry_points"])
    executable, _, function = text.strip("[]").split(",")[0].strip().partition("::")
    return executable.lstrip("@").strip('"'), function.lstrip("@").strip('"')


def _text(operation: Any, attribute: str) -> str:
    return str(operation.attributes[attribute]).strip('"')


def _tensor_bytes(value: Any) -> int:
    """Bytes of a statically shaped tensor; 0 for scalars and for shapes known only later."""
    match = re.fullmatch(r"tensor<((?:\d+x)*)([a-z]+\d+|index)(?:,.*)?>", str(value.type))
    if match is None:
        return 0
    elements = 1
    for size in match.group(1).split("x")[:-1]:
        elements *= int(size)
    bits = _BITS.fullmatch(match.group(2))
    return elements * max(1, (int(bits.group(1)) if bits else 64) // 8)


def _memory(file: Path) -> tuple[int, int]:
    """Bytes of constants, and of the pool that one inference allocates."""
    totals = json.loads(file.read_text(encoding="utf-8"))["stream-aggregate"]
    return (
        int(totals["global"]["constant-size"]),
        int(totals["execution"]["transient-memory-size"]),
    )
