"""``current`` and ``previous``: two links that change together, whatever interrupts the change.

A change is written into ``journal.json`` first. Then ``previous`` is set, then ``current``: the
second rename is the moment at which the change counts. A start that finds the journal looks at
``current`` and finishes or undoes the other link.
"""

from __future__ import annotations

import json
from pathlib import Path

from edgectl_runner.durable import fsync_directory, replace_symlink, write_durably

__all__ = ["Links"]


class Links:
    """The two links of one root folder; a change needs the device's lock."""

    def __init__(self, root: Path):
        self._root = root
        self._journal = root / "journal.json"

    def current(self) -> str | None:
        """The release that counts."""
        return self._read("current")

    def previous(self) -> str | None:
        """The release that a rollback goes to."""
        return self._read("previous")

    def change(self, *, current: str | None, previous: str | None) -> None:
        """Points both links; durable when it returns. ``None`` takes a link away."""
        state = {
            "from": {"current": self.current(), "previous": self.previous()},
            "to": {"current": current, "previous": previous},
        }
        if state["from"] == state["to"]:
            return
        write_durably(self._journal, json.dumps(state).encode())
        self._set("previous", previous)
        self._set("current", current)
        self._drop_journal()

    def recover(self) -> str | None:
        """Finishes or undoes an interrupted change; says which, ``None`` when there was none."""
        try:
            state = json.loads(self._journal.read_bytes())
            before, after = state["from"], state["to"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            # Written durably, so this is a failing card; `current` alone decides then.
            self._drop_journal()
            return "lost"
        if before["current"] == after["current"] or self.current() == after["current"]:
            outcome, previous = "finished", after["previous"]
        else:
            outcome, previous = "undone", before["previous"]
        self._set("previous", previous)
        self._drop_journal()
        return outcome

    def _set(self, name: str, release: str | None) -> None:
        link = self._root / name
        if self._read(name) == release:
            return
        if release is not None:
            replace_symlink(link, f"releases/{release}")
            return
        link.unlink(missing_ok=True)
        fsync_directory(self._root)

    def _read(self, name: str) -> str | None:
        try:
            return (self._root / name).readlink().name
        except OSError:
            return None

    def _drop_journal(self) -> None:
        self._journal.unlink(missing_ok=True)
        fsync_directory(self._root)
