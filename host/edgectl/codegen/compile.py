"""Runs IREE's compiler on a lowered module, for one target, through the content cache."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from edgectl.codegen.cache import CompileCache, content_key
from edgectl.codegen.calls import compile_with_program
from edgectl.codegen.kernels import apply as apply_kernels
from edgectl.errors import CompileError, UsageError
from edgectl.records import (
    CompiledModule,
    Dialect,
    KernelChoice,
    LoweredModule,
    Program,
)
from edgectl.settings import Settings, load_settings
from edgectl_runner.contract import from_document, to_document
from edgectl_toolchains import Target, UnknownTargetError, load_target

__all__ = [
    "compile_key",
    "compile_module",
    "compiler_flags",
    "load_target_or_fail",
    "run_compiler",
    "tool_versions",
]


def load_target_or_fail(name: str) -> Target:
    """The target of that name.

    Raises:
        UsageError: there is none; the message lists those there are.
    """
    try:
        return load_target(name)
    except UnknownTargetError as error:
        if name == "rpi5-vulkan":
            raise UsageError(
                "Models cannot run on the Pi 5's GPU yet, so rpi5-vulkan is no target.",
                cause="iree-compile makes vulkan-spirv modules for generic devices and knows no "
                "VideoCore; the runner drives processors only; no Pi's Vulkan driver was tried.",
                next_step="Use --target rpi5, which runs on the processor.",
            ) from error
        raise UsageError(
            f"There is no target {name!r}.",
            cause=f"Known targets are {', '.join(error.known)}.",
            next_step="edgectl targets",
        ) from error


def tool_versions() -> dict[str, str]:
    """Versions of everything whose change may change the compiled module."""
    names = ("edgectl-toolkit", "torch", "torch-mlir", "iree-base-compiler")
    return {name: importlib.metadata.version(name) for name in names}


def compiler_flags(target: Target, extra: Sequence[str] = ()) -> tuple[str, ...]:
    """The command line for a target; the host's own features never leak into it."""
    features = ",".join(target.cpu_features)
    return (
        "--iree-hal-target-device=local",
        f"--iree-hal-local-target-device-backends={target.backend}",
        f"--iree-llvmcpu-target-triple={target.triple}",
        f"--iree-llvmcpu-target-cpu={target.cpu}",
        *((f"--iree-llvmcpu-target-cpu-features={features}",) if features else ()),
        "--iree-llvmcpu-debug-symbols=false",
        *target.compile_flags,
        *extra,
    )


def compile_module(
    lowered: LoweredModule,
    target: Target,
    *,
    kernels: bool = True,
    extra_flags: Sequence[str] = (),
    settings: Settings | None = None,
    on_step: Callable[[str], None] | None = None,
) -> CompiledModule:
    """Compiles a module for a target, or takes it from the cache.

    Args:
        lowered: what lowering made.
        target: the board.
        kernels: let our own NEON kernels take the dispatches where they win.
        extra_flags: more flags for ``iree-compile``, after the target's own.
        settings: where the cache and the logs are.
        on_step: told the name of each step before it begins.

    Raises:
        CompileError: the compiler refused; its words are in the log file that the message names.
    """
    settings = settings or load_settings()
    flags = compiler_flags(target, extra_flags)
    kernels = kernels and lowered.dialect is Dialect.TOSA
    cache = CompileCache(settings.cache_dir / "compile")
    key = compile_key(lowered, target, kernels=kernels, extra_flags=extra_flags)
    cached = cache.get(key)
    if cached is None:
        if on_step is not None:
            on_step(f"compile for {target.cpu}")
        vmfb, choices, program = _compile(lowered, target, flags, settings, kernels=kernels)
        cache.put(key, _packed(vmfb, choices, program))
    else:
        vmfb, choices, program = _unpacked(cached)
    return CompiledModule(
        lowered=lowered,
        target=target,
        vmfb=vmfb,
        flags=flags,
        tools=tool_versions(),
        kernels=choices,
        program=program,
        cached=cached is not None,
    )


def compile_key(
    lowered: LoweredModule,
    target: Target,
    *,
    kernels: bool = True,
    extra_flags: Sequence[str] = (),
) -> str:
    """Digest of all that decides what `compile_module` makes: equal keys, equal results."""
    kernels = kernels and lowered.dialect is Dialect.TOSA
    return content_key(
        [
            lowered.bytecode,
            repr(target),
            *compiler_flags(target, extra_flags),
            _kernel_sources() if kernels else "no kernels",
            repr([(v.node, v.macs) for v in lowered.coverage.operators]),
            (files("edgectl.codegen") / "calls.py").read_text(encoding="utf-8"),
            *map("=".join, sorted(tool_versions().items())),
        ]
    )


def _compile(
    lowered: LoweredModule,
    target: Target,
    flags: tuple[str, ...],
    settings: Settings,
    *,
    kernels: bool,
) -> tuple[bytes, tuple[KernelChoice, ...], Program]:
    def run(source: bytes, arguments: Sequence[str]) -> bytes:
        return run_compiler(source, arguments, log_dir=settings.log_dir)

    module = lowered.bytecode
    choices: tuple[KernelChoice, ...] = ()
    if kernels:
        result = apply_kernels(
            module, target, flags, run_compiler=run, object_dir=settings.cache_dir / "kernels"
        )
        module, choices, flags = result.module, result.choices, (*flags, *result.flags)
    vmfb, program = compile_with_program(module, flags, lowered.coverage, run_compiler=run)
    return vmfb, choices, program


def _kernel_sources() -> str:
    """Digest of the kernels and of what places them: a changed one is not taken from the cache."""
    digest = hashlib.sha256()
    for folder in (files("edgectl_toolchains") / "kernels", files("edgectl.codegen.kernels")):
        for entry in sorted(folder.iterdir(), key=lambda e: e.name):
            if entry.is_file():
                digest.update(entry.name.encode() + entry.read_bytes())
    return digest.hexdigest()


def _packed(vmfb: bytes, choices: tuple[KernelChoice, ...], program: Program) -> bytes:
    document = {"kernels": [to_document(choice) for choice in choices]}
    head = json.dumps({**document, "program": to_document(program)}).encode()
    return len(head).to_bytes(8, "little") + head + vmfb


def _unpacked(entry: bytes) -> tuple[bytes, tuple[KernelChoice, ...], Program]:
    end = 8 + int.from_bytes(entry[:8], "little")
    document = json.loads(entry[8:end])
    choices = tuple(from_document(KernelChoice, d) for d in document["kernels"])
    return entry[end:], choices, from_document(Program, document["program"])


def run_compiler(module: bytes, flags: Sequence[str], *, log_dir: Path) -> bytes:
    """``iree-compile`` over MLIR bytecode or text; returns what it wrote.

    Raises:
        CompileError: a non-zero exit; standard error is kept in ``log_dir``.
    """
    from iree.compiler.tools.binaries import find_tool

    with tempfile.TemporaryDirectory(prefix="edgectl-compile-") as folder:
        source, result = Path(folder) / "module.mlirbc", Path(folder) / "module.out"
        source.write_bytes(module)
        run = subprocess.run(
            [find_tool("iree-compile"), str(source), *flags, "-o", str(result)],
            capture_output=True,
            check=False,
        )
        if run.returncode == 0 and result.exists():
            return result.read_bytes()
        raise _refusal(run, log_dir)


def _refusal(run: subprocess.CompletedProcess[bytes], log_dir: Path) -> CompileError:
    words = run.stderr.decode(errors="replace")
    log = log_dir / f"compile-{content_key([words])[:12]}.log"
    log_dir.mkdir(parents=True, exist_ok=True)
    log.write_text(" ".join(run.args) + "\n\n" + words)
    flags = [line for line in words.splitlines() if line.startswith("iree-compile: ")]
    if flags:
        return CompileError(
            f"IREE's compiler refused a flag: {flags[0].split('.  Try')[0].split(': ', 1)[1]}",
            cause="It was given with --flag, or another version of the compiler is installed.",
            next_step=f"Leave that flag out; iree-compile --help lists them all (log: {log}).",
        )
    first = next((line for line in words.splitlines() if "error:" in line), "")
    reason = first.split("error:", 1)[-1].strip()[:200]
    if run.returncode < 0:
        reason = f"it was ended by signal {-run.returncode} (out of memory?)"
    return CompileError(
        f"IREE's compiler could not compile the module: {reason or 'no reason given'}",
        cause="An operation that lowering let through has no code for this target.",
        next_step=f"Read {log}; `edgectl explain MODEL` shows every operation; "
        "--dialect linalg takes another way through the compiler.",
    )
