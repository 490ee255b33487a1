"""Replaces matched operations by dispatches into kernel objects.

Each dispatch gets a ``stream.executable`` of its own whose export states the grid of workgroups and
whose body calls the kernel's C function with bare pointers; IREE links the object into the module
and schedules the workgroups over its threads as it does for its own code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgectl.codegen.kernels.constants import element_name

__all__ = ["byte_size", "insert_dispatch"]

_BYTES = {"i8": 1, "f16": 2, "f32": 4, "i32": 4}


def byte_size(value: Any) -> int:
    """Bytes of a statically shaped tensor."""
    from iree.compiler import ir

    return (
        int(np.prod(list(ir.ShapedType(value.type).shape), dtype=np.int64))
        * _BYTES[element_name(value)]
    )


def _executable(
    name: str, symbol: str, object_name: str, target: str, sizes: Sequence[int], groups: int
) -> str:
    bindings = ", ".join(f"%b{i}: !stream.binding" for i in range(len(sizes)))
    spans = "\n".join(
        f"      %m{i} = stream.binding.subspan %b{i}[%c0] : !stream.binding -> memref<{size}xi8>\n"
        f"      %p{i}, %o{i}, %s{i}, %t{i} = iree_codegen.extract_strided_metadata %m{i}"
        f" : memref<{size}xi8> -> "
        "memref<i8>, index, index, index"
        for i, size in enumerate(sizes)
    )
    kinds = ", ".join(["memref<i8>, index"] * len(sizes))
    arguments = ", ".join(f"%p{i}, %o{i}" for i in range(len(sizes)))
    return f"""
stream.executable private @{name} attributes {{hal.executable.objects = #hal.executable.objects<{{
    {target} = [#hal.executable.object<{{path = "{object_name}"}}>]}}>}} {{
  stream.executable.export public @{name} workgroups() -> (index, index, index) {{
    %x = arith.constant {groups} : index
    %c1 = arith.constant 1 : index
    stream.return %x, %c1, %c1 : index, index, index
  }}
  builtin.module {{
    func.func private @{symbol}({kinds}, index)
      attributes {{hal.import.static, llvm.bareptr = true}}
    func.func @{name}({bindings}) {{
      %c0 = arith.constant 0 : index
      %group = stream.dispatch.workgroup.id[0] : index
{spans}
      func.call @{symbol}({arguments}, %group) : ({kinds}, index) -> ()
      return
    }}
  }}
}}"""


def insert_dispatch(
    module: Any,
    *,
    name: str,
    symbol: str,
    object_path: Path,
    target_attribute: str,
    groups: int,
    inputs: Sequence[Any],
    blob: bytes,
    replaced: Sequence[Any],
) -> None:
    """Puts one dispatch in place of ``replaced`` and erases those operations.

    Args:
        module: the module; changed in place.
        name: unique name of the dispatch, as profiles show it.
        symbol: the C function.
        object_path: its object file.
        target_attribute: the ``#hal.executable.target`` that the compiler will use.
        groups: workgroups.
        inputs: tensors the kernel reads, before the blob.
        blob: the constant operand.
        replaced: operations in program order; the last one's only result is what the kernel writes.
    """
    from iree.compiler import ir

    last = replaced[-1]
    result = last.results[0]
    # The dispatch answers for all that it replaces; a profile names them.
    location = ir.Location.fused([o.location for o in replaced], context=module.context)
    with module.context, location:
        byte = ir.IntegerType.get_signless(8)
        data = np.frombuffer(blob, np.int8)
        with ir.InsertionPoint(last):
            constant = ir.Operation.create(
                "arith.constant",
                results=[ir.RankedTensorType.get([data.size], byte)],
                attributes={"value": ir.DenseElementsAttr.get(data, type=byte)},
            )
            operands = [*inputs, constant.results[0]]
            entry = ir.Attribute.parse(f"[@{name}::@{name}]")
            dispatch = ir.Operation.create(
                "flow.dispatch",
                results=[result.type],
                operands=operands,
                attributes={
                    "entry_points": entry,
                    "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, len(operands), 0, 0]),
                    "tied_operands": ir.Attribute.parse("[-1 : index]"),
                },
            )
        sizes = [*map(byte_size, inputs), data.size, byte_size(result)]
        text = _executable(name, symbol, object_path.name, target_attribute, sizes, groups)
        holder = ir.Module.parse(f"module {{{text}\n}}")
        executable = next(iter(holder.body.operations))
        ir.InsertionPoint.at_block_begin(module.body).insert(executable.operation.clone())
        result.replace_all_uses_with(dispatch.results[0])
        for operation in reversed(list(replaced)):
            operation.erase()
