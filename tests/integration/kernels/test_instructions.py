"""No kernel holds an instruction that its board lacks."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from edgectl.codegen.kernels.catalog import KERNELS
from edgectl.codegen.kernels.objects import build_object

OBJDUMP = shutil.which("llvm-objdump-19") or shutil.which("llvm-objdump")

CRYPTO = r"aes\w+|sha\d\w*|pmull2?\s+v\d+\.1q"
ATOMICS = r"(ld|st)(add|clr|eor|set|smax|smin|umax|umin)(a|l|al)?[bh]?\s|cas(a|l|al)?[bhp]?\s|swp(a|l|al)?[bh]?\s"
DOTPROD = r"[us]dot\s"
HALF = r"\b(f\w+|scvtf|ucvtf)\s+[^,]*v\d+\.[48]h\b(?!.*v\d+\.4s)|\bf(add|sub|mul|madd|div)\s+h\d"
NEWER = r"([us]mmla|usdot|bf(dot|mmla|mlal[bt]|cvtn?2?)|sqrdml[as]h|fcmla|fcadd)\s|\bz\d+\."
LACKS = {
    "cortex-a53": f"{CRYPTO}|{ATOMICS}|{DOTPROD}|{HALF}|{NEWER}",
    "cortex-a72": f"{CRYPTO}|{ATOMICS}|{DOTPROD}|{HALF}|{NEWER}",
    "cortex-a76": r"([us]mmla|usdot|bf(dot|mmla|mlal[bt]|cvtn?2?)|fcmla|fcadd)\s|\bz\d+\.",
}


def _disassemble(path) -> list[str]:
    if OBJDUMP is None:
        pytest.skip("llvm-objdump is not installed (apt-get install llvm-19)")
    run = subprocess.run(
        [OBJDUMP, "-d", "--no-show-raw-insn", "--mattr=+all", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [
        line.split(":", 1)[1].split("//")[0].strip().replace("\t", " ")
        for line in run.stdout.splitlines()
        if re.match(r"\s*[0-9a-f]+:\s", line)
    ]


@pytest.mark.parametrize(
    ("kernel", "cpu"), [pytest.param(k, c, id=f"{k.name}-{c}") for k in KERNELS for c in k.cpus]
)
def test_only_instructions_of_the_core(object_dir, kernel, cpu):
    built = build_object(kernel.source, cpu, cache_dir=object_dir, in_order=kernel.in_order)
    code = _disassemble(built)
    assert len(code) > 100
    foreign = [line for line in code if re.search(LACKS[cpu], line)]
    assert not foreign, foreign[:5]
    # x18 belongs to the platform and undefined symbols would need a C library.
    assert not [line for line in code if re.search(r"\b[xw]18\b", line)]
    symbols = subprocess.run(
        [OBJDUMP, "-t", str(built)], capture_output=True, text=True, check=True
    ).stdout
    assert "*UND*" not in symbols


def test_the_check_sees_what_it_looks_for(object_dir):
    dot = next(k for k in KERNELS if k.name == "i8_gemm_dot")
    code = _disassemble(build_object(dot.source, "cortex-a76", cache_dir=object_dir))
    assert any(re.search(LACKS["cortex-a72"], line) for line in code)
    half = next(k for k in KERNELS if k.name == "f16_gemm")
    code = _disassemble(build_object(half.source, "cortex-a76", cache_dir=object_dir))
    assert any(re.search(HALF, line) for line in code)
