"""The INT8 acceptance models: integer arithmetic in PyTorch, and the same integers from IREE."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgectl.lowering.integer import fold_program, integer_coverage
from edgectl.quantization import quantize
from support.integer_import import run_on_host, to_tosa
from support.quantized_models import CASES, acceptance_cases, exported, samples_like

INT8 = [
    "B001",
    "B005",
    "B008",
    "B010",
    "B011",
    "B026",
    "B032",
    "B047",
    "B049",
    "B050",
    "B056",
    "B061",
    "B062",
    "B064",
    "B065",
    "B067",
    "B068",
    "B070",
    "B071",
    "B073",
    "B091",
]
ON_IREE = ["B005", "B008", "B011", "B050", "B056", "B065", "B068", "B071"]

pytestmark = pytest.mark.skipif(not CASES.is_file(), reason="the acceptance models are absent")


def made(case: str):
    model, inputs = acceptance_cases().CASES[case][0]()
    return model, inputs, quantize(exported(model, inputs), "int8", samples_like(inputs))


def call(program, inputs):
    with torch.no_grad():
        result = program.module(check_guards=False)(*inputs)
    return [r.numpy() for r in (result if isinstance(result, tuple | list) else (result,))]


def sqnr_db(exact, got):
    noise = float(((exact - got) ** 2).sum())
    return np.inf if noise == 0 else 10 * np.log10(float((exact**2).sum()) / noise)


def test_the_list_here_is_the_whole_int8_set():
    assert set(INT8) == acceptance_cases().INT8


@pytest.mark.parametrize("case", INT8)
def test_all_macs_are_integer_and_little_is_lost(case):
    model, inputs, quantized = made(case)
    folded = fold_program(quantized.model.program)
    coverage = integer_coverage(folded)
    assert coverage.macs_share >= 0.99, coverage.islands
    with torch.no_grad():
        result = model(*inputs)
    exact = result[0] if isinstance(result, tuple | list) else result
    assert sqnr_db(exact.numpy(), call(folded, inputs)[0]) >= 25


@pytest.mark.parametrize("case", ON_IREE)
def test_iree_computes_the_same_integers(case):
    _, inputs, quantized = made(case)
    folded = fold_program(quantized.model.program)
    expected = call(folded, inputs)
    got = run_on_host(to_tosa(folded), [t.numpy() for t in inputs])
    for ours, theirs in zip(expected, got, strict=True):
        # Equal up to float32 rounding in the islands: a wrong integer would be a whole step.
        assert sqnr_db(ours, theirs) > 100


def test_int8_weights_make_the_file_small():
    _, _, quantized = made("B091")
    from support.integer_import import bytecode

    float_bytes = 2 * (512 * 512 + 512) * 4
    module = to_tosa(fold_program(quantized.model.program))
    assert len(bytecode(module)) <= 0.30 * float_bytes
