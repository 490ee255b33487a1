"""ExportedModel -> LoweredModule: legal TOSA where TOSA can say it, another dialect where not."""

from edgectl.lowering.lower import explain, lower

__all__ = ["explain", "lower"]
