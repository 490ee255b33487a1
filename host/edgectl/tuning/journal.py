"""What was tried before, so that a search that was interrupted goes on where it stopped.

One JSON object a line, appended and flushed as each trial ends. A line that was cut short is left
out; everything else in the file still counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from edgectl.errors import UsageError
from edgectl_runner.contract import ContractError, from_document, to_document

__all__ = ["Entry", "Journal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The outcome of one trial. ``key`` is a digest of all that it depends on.

    ``cost`` is in the evaluator's unit, ``None`` for what does not work; ``reason`` says why then.
    """

    key: str
    label: str
    cost: float | None
    reason: str = ""


class Journal:
    """A file of entries; the last one with a key counts."""

    def __init__(self, file: Path):
        self.file = file
        self._entries: dict[str, Entry] = {}
        try:
            text = file.read_text(encoding="utf-8") if file.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"The journal {file} cannot be read: {error}.",
                next_step="Name another file with --journal, or remove this one.",
            ) from error
        for line in text.splitlines():
            try:
                entry = from_document(Entry, json.loads(line))
            except (ValueError, ContractError):
                continue
            self._entries[entry.key] = entry
        self._torn = bool(text) and not text.endswith("\n")

    def get(self, key: str) -> Entry | None:
        """What came of it before, if it was tried."""
        return self._entries.get(key)

    def add(self, entry: Entry) -> None:
        """Keeps an outcome."""
        self._entries[entry.key] = entry
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a", encoding="utf-8") as file:
                file.write("\n" * self._torn + json.dumps(to_document(entry)) + "\n")
        except OSError as error:
            raise UsageError(
                f"The journal {self.file} cannot be written: {error.strerror}.",
                next_step="Name another file with --journal.",
            ) from error
        self._torn = False
