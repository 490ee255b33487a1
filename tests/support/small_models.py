"""Models that the command line loads as ``small_models.py:NAME``."""

import torch


class Digits(torch.nn.Module):
    """A small image classifier: 1x1x28x28 -> 1x10."""

    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3, stride=2, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU6()
        )
        self.head = torch.nn.Linear(8 * 14 * 14, 10)

    def forward(self, image):
        return self.head(self.features(image).flatten(1))


def digits():
    torch.manual_seed(0)
    return Digits().eval(), (torch.randn(1, 1, 28, 28),)


class Counter(torch.nn.Module):
    """Remembers the sum of what it was given."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 2


def counter():
    return Counter(), (torch.ones(4),)


class Branching(torch.nn.Module):
    """Its control flow depends on its data."""

    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x - 1


def branching():
    return Branching(), (torch.ones(4),)


class Deep(torch.nn.Module):
    """Takes the compiler a few seconds."""

    def __init__(self):
        super().__init__()
        widths = range(8, 40)
        self.layers = torch.nn.Sequential(
            *(torch.nn.Conv2d(n, n + 1, 3, padding=1) for n in widths)
        )

    def forward(self, x):
        return self.layers(x)


def deep():
    torch.manual_seed(0)
    return Deep().eval(), (torch.randn(1, 8, 16, 16),)
