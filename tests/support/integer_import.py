"""A folded program through torch-mlir and IREE on this computer, without the lowering's passes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from edgectl.graph import quiet


def to_tosa(program: Any, *, fast: bool = True) -> Any:
    """The MLIR module of a folded program, in TOSA."""
    from torch_mlir import ir
    from torch_mlir.dialects import torch as torch_dialect
    from torch_mlir.extras.fx_importer import FxImporter
    from torch_mlir.passmanager import PassManager

    from edgectl.lowering.integer.expand import expand_operators
    from edgectl.lowering.integer.fast_rounding import round_fast
    from edgectl.lowering.integer.tosa_constants import constants_to_tosa

    context = ir.Context()
    torch_dialect.register_dialect(context)
    to_tosa = "builtin.module(torch-backend-to-tosa-backend-pipeline)"
    with context:  # a pipeline loads the dialects that it depends on
        PassManager.parse(to_tosa).run(ir.Module.parse("module {}").operation)
    importer = FxImporter(context=context)
    with quiet():
        importer.import_program(program.run_decompositions())
    module = importer.module
    expand_operators(module)
    with context:
        for text in (
            "builtin.module(torchdynamo-export-to-torch-backend-pipeline)",
            to_tosa,
            "builtin.module(canonicalize,cse)",
        ):
            PassManager.parse(text).run(module.operation)
    constants_to_tosa(module)
    if fast:
        round_fast(module)
    return module


def bytecode(module: Any) -> bytes:
    """The module as IREE reads it."""
    file = io.BytesIO()
    module.operation.write_bytecode(file)
    return file.getvalue()


def run_on_host(module: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Compiles for this computer and calls ``main`` once."""
    import iree.compiler
    import iree.runtime

    vmfb = iree.compiler.compile_str(
        bytecode(module),
        target_backends=["llvm-cpu"],
        input_type="tosa",
        extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"],
    )
    config = iree.runtime.Config("local-sync")
    context = iree.runtime.SystemContext(config=config)
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(config.vm_instance, vmfb))
    result = context.modules.module["main"](*inputs)
    results = result if isinstance(result, tuple | list) else [result]
    return [np.asarray(r) for r in results]
