"""Numbers of models, by which a device tells an old bundle from a new one.

    write_bundle(compiled, path, sequence=Numbering(settings.state_dir))

A model that is built gets a number higher than every earlier one of its name; building the very
same again straight away keeps its number, so that nothing has to be sent. A device refuses a
signed bundle with a lower number than it has had (an old file, or somebody's replay of one)
unless that is asked for. The number of new content is the time of its first build in seconds, so
that the computers of a team agree on what is newer without talking to each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from edgectl.errors import ConfigurationError
from edgectl_runner.contract import Manifest, to_document

__all__ = ["Numbering"]


class Numbering:
    """``sequences.json`` in the state folder: by name, the last number and what it stands for."""

    def __init__(self, state_dir: Path):
        self._path = state_dir / "sequences.json"

    def __call__(self, manifest: Manifest) -> int:
        """The number of the model that this manifest (whatever its own number) describes.

        Raises:
            ConfigurationError: the file cannot be read or written.
        """
        document = to_document(replace(manifest, sequence=0))
        digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
        try:
            with self._locked():
                known = self._read()
                number, last = known.get(manifest.name, (0, ""))
                if last != digest:
                    number = max(number + 1, int(time.time()))
                    self._write({**known, manifest.name: (number, digest)})
                return number
        except OSError as error:
            raise ConfigurationError(
                f"the numbers of models cannot be kept in {self._path}: {error.strerror}",
                next_step=f"make {self._path.parent} writable",
            ) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, tuple[int, str]]:
        try:
            document = json.loads(self._path.read_text(encoding="utf-8"))
            return {str(name): (int(n), str(digest)) for name, (n, digest) in document.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"{self._path} is damaged: {error}",
                cause="it was changed by hand, or the disk lost data",
                next_step="remove it; new models get their numbers from the clock",
            ) from error

    def _write(self, known: dict[str, tuple[int, str]]) -> None:
        partial = self._path.with_suffix(".new")
        with partial.open("w", encoding="utf-8") as file:
            json.dump(known, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path)
