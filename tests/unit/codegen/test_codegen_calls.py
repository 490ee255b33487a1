"""The dispatches of a module say which layers they compute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from edgectl.bundle import read_bundle, read_program, write_bundle
from edgectl.codegen import compile_module, load_target_or_fail
from edgectl.lowering import lower
from edgectl.settings import load_settings
from support.exported import export


class Net(torch.nn.Module):
    """Two equal layers, which the compiler makes one dispatch of, and one more."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.first = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.second = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = torch.nn.Linear(8 * 8 * 8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = torch.relu(self.stem(x))
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.head(x.flatten(1))


MACS = {
    "stem": 8 * 8 * 8 * 27,
    "first": 8 * 8 * 8 * 9,
    "second": 8 * 8 * 8 * 9,
    "head": 512 * 10,
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    settings = load_settings({"EDGECTL_HOME": str(tmp_path_factory.mktemp("home"))})
    lowered = lower(export(Net(), torch.zeros(1, 3, 16, 16)))
    target = load_target_or_fail("rpi4")
    return {
        kernels: compile_module(lowered, target, kernels=kernels, settings=settings)
        for kernels in (True, False)
    }


@pytest.mark.parametrize("kernels", [True, False])
def test_every_layer_has_its_multiply_accumulates(compiled, kernels):
    calls = compiled[kernels].program.calls
    found = {c.module: c.macs for c in calls if c.macs}
    assert found == MACS


def test_names_do_not_change_the_module(compiled):
    """Compiled in two steps, as compiled in one."""
    from edgectl.codegen.compile import compiler_flags, run_compiler

    module = compiled[False]
    whole = run_compiler(
        module.lowered.bytecode, compiler_flags(module.target), log_dir=Path("/nonexistent")
    )
    assert whole == module.vmfb


def test_bytes_cover_the_operands(compiled):
    for call in compiled[True].program.calls:
        if call.module == "head" and call.macs:
            assert call.read_bytes >= 4 * (512 + 512 * 10)
            assert call.written_bytes == 40


def test_memory_is_what_the_compiler_plans(compiled):
    program = compiled[True].program
    parameters = sum(p.numel() for p in Net().parameters())
    assert program.constant_bytes >= 4 * parameters
    assert program.transient_bytes >= 4 * 8 * 8 * 8


def test_the_table_travels_in_the_bundle(compiled, tmp_path):
    bundle = write_bundle(compiled[True], tmp_path / "net.edgectl")
    assert read_program(read_bundle(bundle.path)) == compiled[True].program


def test_a_bundle_of_before_has_an_empty_table(compiled, tmp_path):
    bundle = write_bundle(compiled[True], tmp_path / "net.edgectl")
    files = {k: v for k, v in bundle.manifest.files.items() if k != "program.json"}
    older = replace(bundle, manifest=replace(bundle.manifest, files=files))
    assert read_program(older).calls == ()
