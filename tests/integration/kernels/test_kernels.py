"""Every kernel on every core it is for, against NumPy: tails, strides, borders and saturation."""

from __future__ import annotations

import numpy as np
import pytest
from reference import convolve, geometry, make_case

from edgectl.codegen.kernels.catalog import KERNELS, Kernel
from edgectl.codegen.kernels.shapes import Geometry

ON_CORES = [pytest.param(k, cpu, id=f"{k.name}-{cpu}") for k in KERNELS for cpu in k.cpus]

# Float kernels sum in another order than NumPy; the bound is the one the README states, relative to
# the largest output: a few roundings per accumulated term.
FLOAT_BOUND = {"f32": 1e-5, "f16": 2e-2}
# The transforms add and subtract values larger than the result: about one digit less.
WINOGRAD_BOUND = 5e-6

GEMM = [
    geometry((1, 1), 8, 1),  # a single dot product
    geometry((1, 1), 1280, 1000),  # a classifier: one row, many columns
    geometry((7, 7), 96, 40),  # 49 rows, a half panel of columns
    geometry((3, 5), 24, 17),
    geometry((2, 3), 7, 9),  # a depth that is no multiple of anything: packed rows
    geometry((5, 4), 16, 33, batch=3),
    geometry((9, 9), 8, 16, k=(3, 3), pad=(1, 1, 1, 1)),
    geometry((9, 8), 16, 12, k=(3, 3), stride=2, pad=(0, 1, 0, 1)),
    geometry((11, 10), 8, 8, k=(3, 3), dilation=2, pad=(2, 2, 2, 2)),
    geometry((13, 9), 3, 32, k=(3, 3), stride=2, pad=(0, 1, 1, 0)),  # a first layer
    geometry((12, 12), 3, 24, k=(7, 7), stride=2, pad=(3, 3, 3, 3)),
    geometry((6, 6), 32, 20, stride=2),  # a strided 1x1: not the matrix as it lies
    geometry((5, 7), 5, 6, k=(1, 3), pad=(0, 0, 1, 1), batch=2),
    geometry((4, 4), 16, 8, k=(5, 5), pad=(2, 2, 2, 2)),  # the window is larger than the image
]
DEPTHWISE = [
    geometry((7, 7), 32, 32, k=(3, 3), pad=(1, 1, 1, 1), depthwise=True),
    geometry((7, 9), 48, 48, k=(3, 3), stride=2, pad=(0, 1, 0, 1), depthwise=True),
    geometry((14, 14), 16, 16, k=(5, 5), pad=(2, 2, 2, 2), depthwise=True),
    geometry((9, 14), 32, 32, k=(5, 5), stride=2, pad=(1, 2, 1, 2), depthwise=True),
    geometry((6, 6), 17, 17, k=(3, 3), pad=(1, 1, 1, 1), depthwise=True),  # a tail of channels
    geometry((5, 5), 3, 3, k=(3, 3), pad=(1, 1, 1, 1), depthwise=True),
    geometry((8, 8), 40, 40, k=(3, 3), depthwise=True, batch=2),
    geometry((11, 9), 16, 16, k=(3, 3), dilation=2, pad=(2, 2, 2, 2), depthwise=True),
    geometry((9, 9), 24, 24, k=(7, 7), pad=(3, 3, 3, 3), depthwise=True),
    geometry((9, 9), 16, 16, k=(3, 5), pad=(1, 1, 2, 2), depthwise=True),
    geometry((3, 3), 32, 32, k=(5, 5), pad=(2, 2, 2, 2), depthwise=True),
    geometry((10, 10), 32, 32, k=(3, 3), stride=3, pad=(1, 1, 1, 1), depthwise=True),
]


WINOGRAD = [
    geometry((12, 12), 16, 24, k=(3, 3), pad=(1, 1, 1, 1)),
    geometry((14, 13), 64, 40, k=(3, 3), pad=(1, 1, 1, 1)),  # tiles that end early both ways
    geometry((17, 10), 36, 16, k=(3, 3), batch=2),  # no padding: the last block is not full
    geometry((13, 15), 20, 8, k=(3, 3), pad=(0, 2, 2, 1)),
    geometry((14, 14), 128, 64, k=(3, 3), pad=(1, 1, 1, 1)),
]


def _geometries(kernel: Kernel) -> list[Geometry]:
    if kernel.layout.winograd:
        return WINOGRAD
    return DEPTHWISE if kernel.depthwise else GEMM


def _cases(kernel: Kernel, **kinds: bool) -> list:
    rng = np.random.default_rng(11)
    made = [make_case(rng, kernel.element, g, **kinds) for g in _geometries(kernel)]
    return [case for case in made if not kernel.limit(case[0])]


def _compare(kernel: Kernel, cases: list, results: list[np.ndarray]) -> None:
    for (conv, data), got in zip(cases, results, strict=True):
        want = convolve(conv, data)
        if kernel.element == "i8":
            wrong = np.argwhere(got != want)
            assert wrong.size == 0, (
                f"{conv.geometry}: {len(wrong)} of {got.size} differ, first at {wrong[0]}"
            )
        else:
            error = np.abs(got.astype(np.float64) - want).max() / max(
                1.0, float(np.abs(want).max())
            )
            bound = WINOGRAD_BOUND if kernel.layout.winograd else FLOAT_BOUND[kernel.element]
            assert error < bound, f"{conv.geometry}: relative error {error:.2e}"


@pytest.mark.parametrize(("kernel", "cpu"), ON_CORES)
def test_kernel_computes_what_numpy_computes(run_on_core, kernel, cpu):
    cases = _cases(kernel)
    _compare(kernel, cases, run_on_core(kernel, cpu, cases))


@pytest.mark.parametrize(("kernel", "cpu"), [p for p in ON_CORES if p.values[0].element == "i8"])
def test_extreme_values_neither_wrap_nor_round_differently(run_on_core, kernel, cpu):
    # Inputs of -128 with weights of -127: two products are the largest sum 16 bits must hold. The wide
    # scale drives results far beyond int8, into saturation, and out of the narrow form.
    cases = [*_cases(kernel, extreme=True), *_cases(kernel, extreme=True, wide_scale=True)]
    _compare(kernel, cases, run_on_core(kernel, cpu, cases))


@pytest.mark.parametrize(
    ("kernel", "cpu"), [pytest.param(k, k.cpus[0], id=f"{k.name}-{k.cpus[0]}") for k in KERNELS]
)
def test_portable_form_agrees_and_has_no_undefined_behaviour(run_sanitized, kernel, cpu):
    cases = _cases(kernel)
    if kernel.element == "i8":
        cases += _cases(kernel, extreme=True)
    _compare(kernel, cases, run_sanitized(kernel, cpu, cases))
