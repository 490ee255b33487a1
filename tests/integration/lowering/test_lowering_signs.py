"""The sign of a zero counts where PyTorch says that it does."""

from __future__ import annotations

import torch
from torch import nn

from edgectl.lowering import lower
from support.exported import export
from support.host_run import worst_error

SIGNED = torch.tensor([-0.0, 0.0, -1.5, 2.0, -1e-40, float("inf"), -float("inf")])


class Signs(nn.Module):
    def forward(self, x):
        return torch.signbit(x), torch.copysign(torch.full_like(x, 3.0), x)


def test_negative_zero_is_negative():
    assert worst_error(lower(export(Signs(), SIGNED))) == 0
