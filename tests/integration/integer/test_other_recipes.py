"""Recipes without calibration data, through the folding and IREE."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from edgectl.lowering.integer import fold_program, integer_coverage
from edgectl.quantization import quantize
from support.integer_import import bytecode, run_on_host, to_tosa
from support.quantized_models import exported

INPUTS = (torch.randn(3, 7, 64, generator=torch.Generator().manual_seed(0)),)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16)).eval()


@pytest.mark.parametrize("recipe", ["dynamic_wi8_ai8", "weight_only_wi8", "fp16"])
def test_the_recipe_stays_close_to_float_on_iree(recipe):
    module = network()
    with torch.no_grad():
        exact = module(*INPUTS).numpy()
    result = quantize(exported(module, INPUTS), recipe)
    folded = fold_program(result.model.program)
    (got,) = run_on_host(to_tosa(folded), [t.numpy() for t in INPUTS])
    noise = float(((got - exact) ** 2).sum())
    assert 10 * np.log10(float((exact**2).sum()) / noise) > 35
    assert result.report["against_float"]["sqnr_db"] > 35


def test_dynamic_products_are_integer_and_weights_are_small():
    result = quantize(exported(network(), INPUTS), "dynamic_wi8_ai8")
    folded = fold_program(result.model.program)
    assert integer_coverage(folded).macs_share == 1.0
    assert len(bytecode(to_tosa(folded))) < 0.5 * 4 * (64 * 128 + 128 * 16)
