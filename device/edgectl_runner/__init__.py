"""The device side of edgectl: installs, checks, times and serves one bundle on a Pi."""

__version__ = "0.1.0"
