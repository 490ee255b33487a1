"""A limit on how fast bytes travel, for a network that others use as well."""

from __future__ import annotations

import time

from edgectl.remote.base import Progress

__all__ = ["limited"]


def limited(progress: Progress | None, bytes_per_s: float | None) -> Progress | None:
    """A progress callback that waits whenever the transfer is ahead of the limit.

    Transfers report after each piece they have handed to the network, so waiting there slows
    them down. ``None`` as the limit changes nothing.
    """
    if bytes_per_s is None:
        return progress
    start_s = time.monotonic()
    first: int | None = None

    def wait(done: int, total: int) -> None:
        nonlocal first
        if progress is not None:
            progress(done, total)
        if first is None:
            first = done  # a transfer that goes on from an earlier one starts high
            return
        ahead_s = (done - first) / bytes_per_s - (time.monotonic() - start_s)
        if ahead_s > 0:
            time.sleep(ahead_s)

    return wait
