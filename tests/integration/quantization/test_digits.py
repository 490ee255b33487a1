"""A small CNN trained here on scikit-learn's digits: INT8 keeps its accuracy on held-out labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from edgectl.lowering.integer import fold_program, integer_coverage
from edgectl.quantization import quantize
from support.integer_import import run_on_host, to_tosa
from support.quantized_models import exported

BATCH = 60


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    digits = load_digits()
    images = (digits.images[:, None] / 8.0 - 1.0).astype(np.float32)
    x, held_x, y, held_y = train_test_split(
        images, digits.target, test_size=600, random_state=0, stratify=digits.target
    )
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 16, 10),
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(12):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(network(x[rows]), y[rows]).backward()
            optimizer.step()
    return network.eval(), x, torch.from_numpy(held_x), held_y


def test_int8_is_within_three_tenths_of_a_point(trained):
    network, x, held_x, held_y = trained
    inputs = (held_x[:BATCH],)
    data = [x[i * BATCH : (i + 1) * BATCH] for i in range(8)]
    quantized = quantize(exported(network, inputs), "int8", data)
    folded = fold_program(quantized.model.program)
    assert integer_coverage(folded).macs_share == 1.0
    integer = folded.module(check_guards=False)
    batches = held_x.split(BATCH)
    with torch.no_grad():
        exact = torch.cat([network(b) for b in batches]).argmax(1).numpy()
        got = torch.cat([integer(b) for b in batches]).argmax(1).numpy()
        first = integer(batches[0]).numpy()
    float_accuracy = 100 * (exact == held_y).mean()
    assert float_accuracy > 97  # otherwise the comparison says nothing
    assert 100 * (got == held_y).mean() >= float_accuracy - 0.3
    (compiled,) = run_on_host(to_tosa(folded), [batches[0].numpy()])
    np.testing.assert_array_equal(compiled, first)


def test_a_users_metric_decides_how_much_stays_float(trained):
    network, x, held_x, held_y = trained
    batches = held_x.split(BATCH)

    def accuracy(run):
        answers = torch.cat([run(batch)[0] for batch in batches]).argmax(1).numpy()
        return 100 * float((answers == held_y).mean())

    quantized = quantize(
        exported(network, (held_x[:BATCH],)),
        "int8",
        [x[i * BATCH : (i + 1) * BATCH] for i in range(8)],
        evaluation=list(batches),
        metric=accuracy,
        max_drop=0.5,
    )
    assert quantized.report["integer_macs_share"] == 1.0
    assert quantized.report["kept_float"] == []
