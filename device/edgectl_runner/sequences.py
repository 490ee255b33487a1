"""The newest number of each model name that this device has taken: no replay of an older one."""

from __future__ import annotations

import json
from pathlib import Path

from edgectl_runner.contract import Manifest
from edgectl_runner.durable import write_durably
from edgectl_runner.failures import CONFIGURATION, RunnerError

__all__ = ["SequenceRecord"]


class SequenceRecord:
    """``sequences.json``: model name to number."""

    def __init__(self, root: Path):
        self._path = root / "sequences.json"

    def check(self, manifest: Manifest, *, allow_downgrade: bool) -> None:
        """Refuses a model older than the newest of its name that this device has had.

        Raises:
            RunnerError: exit code 3, with both numbers.
        """
        newest = self._read().get(manifest.name, 0)
        if manifest.sequence < newest and not allow_downgrade:
            raise RunnerError(
                f"the model was refused: it is number {manifest.sequence} of {manifest.name!r}, "
                f"and this device has had number {newest}",
                code=CONFIGURATION,
                cause="an old bundle was deployed, or somebody replays one",
                next_step="deploy the newest, or say --allow-older",
            )

    def note(self, manifest: Manifest) -> None:
        """Remembers the number of an accepted model."""
        newest = self._read()
        if manifest.sequence > newest.get(manifest.name, 0):
            newest[manifest.name] = manifest.sequence
            write_durably(self._path, json.dumps(newest, sort_keys=True).encode())

    def _read(self) -> dict[str, int]:
        try:
            document = json.loads(self._path.read_bytes())
            return {str(name): int(number) for name, number in document.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError) as error:
            raise RunnerError(
                "the device's record of model numbers is damaged",
                code=CONFIGURATION,
                cause="the card lost data, or somebody changed sequences.json",
                next_step="remove the file on the device to begin anew",
            ) from error
