"""Rewrites of FX graphs that more than one stage needs."""

from __future__ import annotations

from edgectl.graph.batch_norm import fold_batch_norms
from edgectl.graph.constants import attribute, constant_of, new_constant
from edgectl.graph.quiet import quiet

__all__ = ["attribute", "constant_of", "fold_batch_norms", "new_constant", "quiet"]
