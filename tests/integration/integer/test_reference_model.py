"""Fully integer models against Arm's reference implementation of TOSA, bit for bit.

Needs the ``tosa-tools`` package in an environment of its own (it pins an older NumPy):
EDGECTL_TOSA_TOOLS names the folder with its ``tosa-opt`` and ``tosa_reference_model``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgectl.lowering.integer import fold_program
from edgectl.quantization import quantize
from support.integer_import import bytecode, run_on_host, to_tosa
from support.quantized_models import exported, samples_like

TOOLS = Path(os.environ.get("EDGECTL_TOSA_TOOLS", "/nonexistent"))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.second, self.skip = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        y = torch.relu(self.second(torch.sigmoid(self.first(x))) + 0.1 * self.skip(x))
        return self.head(y.mean((2, 3)))


MODELS = {
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.ReLU6(),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8),
            nn.Hardswish(),
            nn.AvgPool2d(2),
            nn.Conv2d(8, 4, 1),
        ),
        (1, 3, 21, 24),
    ),
    "residual": (Residual, (2, 8, 9, 9)),
    "transposed": (
        lambda: nn.Sequential(
            nn.ConvTranspose2d(3, 5, 3, stride=2, padding=1, output_padding=1),
            nn.ReLU(),
            nn.Conv2d(5, 2, 3),
        ),
        (1, 3, 7, 9),
    ),
}


def integer_model(name: str):
    factory, shape = MODELS[name]
    torch.manual_seed(0)
    inputs = (torch.randn(shape),)
    module = factory().eval()
    result = quantize(
        exported(module, inputs), "int8", samples_like(inputs), quantized_io=True
    ).model
    return result, [torch.from_numpy(a) for a in result.calls[0].inputs]


@pytest.mark.parametrize("name", MODELS)
def test_the_module_is_valid_in_the_integer_profile_and_iree_agrees(name):
    from torch_mlir import ir
    from torch_mlir.passmanager import PassManager

    model, inputs = integer_model(name)
    folded = fold_program(model.program, exact_rounding=True)
    module = to_tosa(folded, fast=False)
    (got,) = run_on_host(module, [t.numpy() for t in inputs])
    with torch.no_grad():
        expected = folded.module(check_guards=False)(*inputs).numpy()
    np.testing.assert_array_equal(got, expected)
    with module.context:
        checked = ir.Module.parse(module.operation.get_asm(print_generic_op_form=True))
        PassManager.parse(
            "builtin.module(tosa-attach-target{profiles=pro_int specification_version=1.0},"
            "tosa-validate{strict-op-spec-alignment})"
        ).run(checked.operation)


@pytest.mark.parametrize("name", MODELS)
def test_fast_rounding_is_at_most_one_step_away(name):
    model, inputs = integer_model(name)
    with torch.no_grad():
        exact, fast = (
            fold_program(model.program, exact_rounding=e).module(check_guards=False)(*inputs)
            for e in (True, False)
        )
    assert int((exact.int() - fast.int()).abs().max()) <= 1


@pytest.mark.skipif(not (TOOLS / "tosa-opt").exists(), reason="EDGECTL_TOSA_TOOLS is not set")
@pytest.mark.parametrize("name", MODELS)
def test_arms_reference_model_gives_the_same_bits(name, tmp_path):
    model, inputs = integer_model(name)
    folded = fold_program(model.program, exact_rounding=True)
    (tmp_path / "m.mlirbc").write_bytes(bytecode(to_tosa(folded, fast=False)))
    np.save(tmp_path / "in.npy", inputs[0].numpy())
    subprocess.run(
        [
            str(TOOLS / "tosa-opt"),
            "m.mlirbc",
            "--tosa-attach-target=profiles=pro_int",
            "--tosa-serialize",
            "--tosa-flatbuffer-filename=m.tosa",
            "-o",
            os.devnull,
        ],
        cwd=tmp_path,
        check=True,
        timeout=120,
        capture_output=True,
    )
    subprocess.run(
        [
            str(TOOLS / "tosa_reference_model"),
            "--tosa_file=m.tosa",
            "--ifm_name=TosaInput_0",
            "--ifm_file=in.npy",
            "--ofm_name=TosaOutput_0",
            "--ofm_file=out.npy",
            "--output_dir=.",
            "--flatbuffer_dir=.",
        ],
        cwd=tmp_path,
        check=True,
        timeout=120,
        capture_output=True,
    )
    with torch.no_grad():
        expected = folded.module(check_guards=False)(*inputs).numpy()
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
