"""Flags of a target are the board's own, and a refusal of the compiler is one clear error."""

from __future__ import annotations

import pytest

from edgectl.codegen.compile import compiler_flags, load_target_or_fail, run_compiler
from edgectl.errors import CompileError, UsageError
from edgectl_toolchains import load_target, target_names

BOARDS = [name for name in target_names() if name != "host"]


@pytest.mark.parametrize("name", BOARDS)
def test_nothing_of_this_computer_leaks_into_a_board(name):
    flags = compiler_flags(load_target(name))
    assert not [flag for flag in flags if "=host" in flag]
    assert [flag for flag in flags if flag.startswith("--iree-llvmcpu-target-triple=aarch64")]


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("rpi3", "dotprod aes sha2 lse fullfp16"),
        ("rpizero2w", "dotprod aes sha2 lse fullfp16"),
        ("rpi4", "dotprod aes sha2 lse fullfp16"),
        ("rpi5", "i8mm bf16 sve"),
    ],
)
def test_no_board_is_said_to_have_what_it_lacks(name, absent):
    features = load_target(name).cpu_features
    assert not [word for word in absent.split() if f"+{word}" in features]


def test_the_pi_5_uses_its_dot_product():
    assert load_target("rpi5").has_dotprod
    assert load_target("rpi5").has_fp16
    assert not load_target("rpi4").has_dotprod


def test_an_unknown_target_lists_the_known_ones():
    with pytest.raises(UsageError) as caught:
        load_target_or_fail("rpi9")
    assert "rpi4" in (caught.value.cause or "")
    assert caught.value.exit_code == 2


def test_a_refusal_names_the_log_and_not_the_dump(tmp_path):
    text = b'func.func @main() -> tensor<4xf32> { %0 = "tosa.nonsense"() : () -> tensor<4xf32> }'
    with pytest.raises(CompileError) as caught:
        run_compiler(text, compiler_flags(load_target("rpi4")), log_dir=tmp_path)
    log = next(tmp_path.glob("compile-*.log"))
    assert str(log) in (caught.value.next_step or "")
    assert len(caught.value.message) < 300
    assert "nonsense" in log.read_text()
