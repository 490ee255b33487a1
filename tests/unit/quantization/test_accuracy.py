"""The comparison of three programs, and equalisation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from edgectl.quantization.accuracy import ErrorTally, compare_outputs, three_way
from edgectl.quantization.equalize import equalize
from edgectl.quantization.prepare import prepare


def outputs(noise: float, seed: int = 0):
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(4, 10, generator=generator) for _ in range(5)]
    other = torch.Generator().manual_seed(seed)
    return [[v + noise * torch.randn(v.shape, generator=other)] for v in values]


def test_sqnr_is_what_its_definition_says():
    tally = ErrorTally()
    tally.add(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5]))
    assert tally.sqnr_db == pytest.approx(20.0)
    assert tally.largest_error == 0.5


def test_equal_outputs_agree_completely():
    found = compare_outputs(outputs(0.0), outputs(0.0))
    assert found.top1 == 100.0
    assert found.to_document()["sqnr_db"] is None  # infinite, which JSON does not know


def test_the_verdict_blames_quantization_when_the_device_follows_the_program():
    exact, quantized = outputs(0.0), outputs(0.1, seed=1)
    device = [[q[0] + 1e-6] for q in quantized]
    assert three_way(exact, quantized, device)["verdict"].startswith("The loss is quantization")


def test_the_verdict_blames_the_compiler_when_the_device_does_not():
    exact, quantized = outputs(0.0), outputs(0.01, seed=1)
    device = [[q[0].roll(1, -1)] for q in quantized]
    assert "look at the compiler" in three_way(exact, quantized, device)["verdict"]


def test_rounding_of_half_precision_blames_nobody():
    exact, quantized, device = outputs(0.0), outputs(1e-3, 1), outputs(1e-3, 2)
    assert three_way(exact, quantized, device)["verdict"].startswith("Both losses are small")


@pytest.mark.parametrize(
    ("module", "pairs"),
    [
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)), 1),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3, groups=8)), 1),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU6(), nn.Conv2d(8, 4, 1)), 0),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1, groups=2)), 0),
    ],
)
def test_equalising_changes_no_output(module, pairs):
    torch.manual_seed(0)
    x = torch.randn(1, 3, 9, 9)
    with torch.no_grad():
        module[0].weight.mul_(torch.logspace(-2, 2, 8).reshape(-1, 1, 1, 1))
        module[0].bias.normal_()
        expected = module.eval()(x)
    graph = prepare(torch.export.export(module, (x,)))
    assert equalize(graph) == pairs
    with torch.no_grad():
        torch.testing.assert_close(graph(x), expected, atol=1e-4, rtol=1e-4)
