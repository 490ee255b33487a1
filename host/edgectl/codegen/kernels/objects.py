"""Cross-compiles the kernels' C files with the ``ziglang`` package; results are kept by content."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import tempfile
from importlib.resources import as_file, files
from pathlib import Path

from edgectl.codegen.cache import content_key
from edgectl.codegen.kernels.page_alignment import keep_within_pages
from edgectl.errors import CompileError
from edgectl_toolchains import Target

__all__ = ["COMMON_FLAGS", "build_object", "compile_command", "kernel_sources"]

# Freestanding: an embedded ELF has no libc.
# Contraction stays off, so that a*b+c is fused only where a kernel asks for it.
COMMON_FLAGS = (
    "-O3",
    "-g0",
    "-ffreestanding",
    "-fno-builtin",
    "-ffunction-sections",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    "-fno-sanitize=all",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
    "-ffp-contract=off",
    # IREE's worker threads have 128 KiB of stack, and need some of it themselves.
    "-Wframe-larger-than=98304",
    "-Wall",
    "-Wextra",
    "-Werror",
)
_IN_ORDER_FLAGS = (
    "-DEDGECTL_IN_ORDER",
    "-mllvm",
    "-enable-misched=false",
    "-mllvm",
    "-enable-post-misched=false",
)
_CORES = {"cortex-a53": "cortex_a53", "cortex-a72": "cortex_a72", "cortex-a76": "cortex_a76"}
# What Raspberry Pi parts lack although Arm's core may have it, and what no kernel needs.
# x18 stays free, as in the code that IREE generates around the kernels.
_FEATURES = "-crypto+reserve_x18"


def kernel_sources() -> Path:
    """The folder with the kernels' C files."""
    with as_file(files("edgectl_toolchains") / "kernels") as folder:
        return folder


def supports(target: Target) -> bool:
    """Whether kernels exist for the target's core."""
    return target.architecture == "aarch64" and target.cpu in _CORES


def compile_command(cpu: str, *, in_order: bool = False) -> list[str]:
    """The compiler and its flags for a core, without input and output."""
    core = _CORES[cpu]
    return [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        "aarch64-linux-gnu",
        f"-mcpu={core}{_FEATURES}",
        *COMMON_FLAGS,
        *(_IN_ORDER_FLAGS if in_order else ()),
    ]


def build_object(source: str, cpu: str, *, cache_dir: Path, in_order: bool = False) -> Path:
    """Compiles one C file for a core, or finds the result of an earlier run.

    Args:
        source: name of the file in the kernels' folder.
        cpu: the core, as a target names it.
        cache_dir: where objects are kept.
        in_order: the file is written in issue order; keep it.

    Returns:
        The object file; its name holds a digest of sources, flags and compiler.

    Raises:
        CompileError: ziglang is not installed, or the compiler refused.
    """
    folder = kernel_sources()
    command = compile_command(cpu, in_order=in_order)
    try:
        version = importlib.metadata.version("ziglang")
    except importlib.metadata.PackageNotFoundError as error:
        raise CompileError(
            "The kernels cannot be compiled: the package ziglang is not installed.",
            cause="It brings the C compiler for aarch64; edgectl was installed without it.",
            next_step="pip install ziglang, or compile with --no-kernels",
        ) from error
    headers = [path.read_bytes() for path in sorted(folder.glob("*.h"))]
    key = content_key(
        [version, "page-aligned", *command[1:], (folder / source).read_bytes(), *headers]
    )
    result = cache_dir / f"{Path(source).stem}-{cpu}-{key[:20]}.o"
    if result.exists():
        return result
    cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=cache_dir) as scratch:
        temporary = Path(scratch) / "kernel.o"
        run = subprocess.run(
            [*command, "-c", str(folder / source), "-o", str(temporary)],
            capture_output=True,
            text=True,
            check=False,
            # Zig keeps its own caches; beside ours they are found and deleted together.
            env={
                **os.environ,
                "ZIG_GLOBAL_CACHE_DIR": str(cache_dir / "zig"),
                "ZIG_LOCAL_CACHE_DIR": str(cache_dir / "zig"),
            },
        )
        if run.returncode != 0 or not temporary.exists():
            raise CompileError(
                f"The kernel {source} does not compile for {cpu}: "
                f"{(run.stderr.strip().splitlines() or ['no reason given'])[0][:200]}",
                cause="This ziglang's compiler is not the one the kernels were written for.",
                next_step="Compile with --no-kernels, or install the pinned ziglang.",
            )
        temporary.write_bytes(keep_within_pages(temporary.read_bytes()))
        temporary.replace(result)
    return result
