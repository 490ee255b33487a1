"""Models for profiles: few layers, each long beside what lies between them.

Under proot every look at the clock is a system call that waits for another process; on a busy
computer that is milliseconds between two dispatches, which a real device does not have.
"""

import torch

WIDTHS = (16, 32, 48)
SIZE = 40


class FewLayers(torch.nn.Module):
    """Three convolutions, the later ones with more arithmetic."""

    def __init__(self):
        super().__init__()
        inputs = (16, *WIDTHS)
        self.layers = torch.nn.Sequential(
            *(torch.nn.Conv2d(a, b, 3, padding=1) for a, b in zip(inputs, WIDTHS, strict=False))
        )

    def forward(self, x):
        return self.layers(x)


def few_layers():
    torch.manual_seed(0)
    return FewLayers().eval(), (torch.randn(1, 16, SIZE, SIZE),)


def macs():
    """Multiply-accumulates by module name."""
    inputs = (16, *WIDTHS)
    pairs = enumerate(zip(inputs, WIDTHS, strict=False))
    return {f"layers.{i}": SIZE * SIZE * 9 * a * b for i, (a, b) in pairs}
