"""Rewrites of the pure FX graph before it is imported: one per file, their order here."""

from __future__ import annotations

from collections.abc import Callable

from torch import fx

from edgectl.lowering.legalisation.batch_norm import rewrite_batch_norms
from edgectl.lowering.legalisation.copies import drop_copies
from edgectl.lowering.legalisation.grouped_conv3d import split_grouped_conv3d
from edgectl.lowering.legalisation.indices import wrap_indices
from edgectl.lowering.legalisation.narrow_integers import widen_narrow_integers
from edgectl.lowering.legalisation.negative_pad import crop_negative_pads
from edgectl.lowering.legalisation.pooling import rewrite_pools
from edgectl.lowering.legalisation.powers import rewrite_powers
from edgectl.lowering.legalisation.resizing import rewrite_resizes
from edgectl.lowering.legalisation.respelling import respell

__all__ = ["REWRITES", "legalise"]

REWRITES: tuple[Callable[[fx.GraphModule], int], ...] = (
    drop_copies,
    rewrite_batch_norms,
    rewrite_resizes,
    rewrite_pools,
    wrap_indices,
    rewrite_powers,
    widen_narrow_integers,
    crop_negative_pads,
    split_grouped_conv3d,
    respell,
)


def legalise(module: fx.GraphModule) -> None:
    """Applies every rewrite, in order, in place."""
    for rewrite in REWRITES:
        if rewrite(module):
            module.graph.eliminate_dead_code()
            module.recompile()
