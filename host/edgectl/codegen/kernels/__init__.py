"""Our own NEON kernels in an IREE module: matching, packing, compiling, inserting."""

from edgectl.codegen.kernels.apply import KernelResult, apply

__all__ = ["KernelResult", "apply"]
