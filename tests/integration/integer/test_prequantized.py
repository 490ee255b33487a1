"""Programs that torchao's PT2E flow quantized: they go straight through the same folding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from edgectl.graph import quiet
from edgectl.lowering.integer import fold_model, fold_program, holds_pairs, integer_coverage
from support.pt2e import pt2e
from support.quantized_models import exported, operators


@pytest.mark.parametrize("qat", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_users_quantized_program_becomes_integer(qat):
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 8 * 8, 5),
    ).eval()
    inputs = (torch.randn(1, 3, 10, 10),)
    converted = pt2e(module, inputs, qat=qat)
    with quiet():
        program = torch.export.export(converted, inputs)
    assert holds_pairs(program)
    folded = fold_program(program)
    assert integer_coverage(folded).macs_share == 1.0
    assert not any("quantized_decomposed" in name for name in operators(folded))
    with torch.no_grad():
        expected = converted(*inputs).numpy()
        got = folded.module(check_guards=False)(*inputs).numpy()
    # The last operator is a dequantize: one step is the largest honest difference.
    assert np.abs(expected - got).max() <= 1.01 * np.diff(np.unique(expected)).min()


def test_unsigned_activations_are_shifted():
    q = torch.ops.quantized_decomposed

    class Unsigned(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.randint(-127, 128, (4, 6), dtype=torch.int8))
            self.register_buffer("scales", torch.rand(4) * 0.01 + 0.01)
            self.register_buffer("zeros", torch.zeros(4, dtype=torch.int64))

        def forward(self, x):
            byte = (0.02, 100, 0, 255, torch.uint8)
            x = q.dequantize_per_tensor(q.quantize_per_tensor(x, *byte), *byte)
            weight = q.dequantize_per_channel(
                self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8
            )
            return torch.nn.functional.linear(x, weight)

    torch.manual_seed(0)
    module, x = Unsigned(), torch.randn(3, 6)
    folded = fold_program(torch.export.export(module, (x,)))
    assert integer_coverage(folded).macs_share == 1.0
    with torch.no_grad():
        torch.testing.assert_close(folded.module(check_guards=False)(x), module(x))


def test_the_golden_outputs_become_the_integer_programs():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    inputs = (torch.randn(1, 3, 8, 8),)
    model = fold_model(exported(pt2e(module.eval(), inputs, qat=False), inputs))
    with torch.no_grad():
        expected = model.program.module(check_guards=False)(*inputs).numpy()
    np.testing.assert_array_equal(model.calls[0].outputs[0], expected)
