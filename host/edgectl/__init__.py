"""edgectl: deploy PyTorch models to Raspberry Pis through TOSA and IREE."""

__version__ = "0.1.0"
