"""LoweredModule -> CompiledModule: IREE's compiler for one board, with our tiles and kernels."""

from edgectl.codegen.compile import compile_key, compile_module, load_target_or_fail

__all__ = ["compile_key", "compile_module", "load_target_or_fail"]
