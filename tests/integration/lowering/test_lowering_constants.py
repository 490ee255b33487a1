"""Constants arrive as they are: each its own, of every dtype, however many there are."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from edgectl.lowering import lower
from support.exported import export
from support.host_run import worst_error


class Masks(nn.Module):
    """Many boolean constants of one shape, all different."""

    def __init__(self, count: int):
        super().__init__()
        for index in range(count):
            self.register_buffer(f"mask{index}", torch.arange(16) % (index + 2) == 0)
        self.count = count

    def forward(self, x):
        for index in range(self.count):
            x = torch.where(getattr(self, f"mask{index}"), x * (index + 1.5), x)
        return x


def test_boolean_constants_of_one_shape_are_not_taken_for_each_other():
    assert worst_error(lower(export(Masks(24), torch.randn(16)))) < 1e-5


class Table(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table.to(torch.float32), self.table + 1


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.int8, torch.int16, torch.int32, torch.int64]
)
@pytest.mark.parametrize("strided", [False, True])
def test_tables_of_every_dtype(dtype, strided):
    table = (torch.arange(12) - 6).to(dtype)
    table = table.reshape(4, 3).T if strided else table.reshape(3, 4)
    assert worst_error(lower(export(Table(table), torch.randn(3, 4)))) < 1e-6
