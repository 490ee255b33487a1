"""Who may run code on this computer: the answer to one question per file, bound to its digest.

Loading a pickle, a TorchScript archive or a ``.pt2`` can run any code (``torch.export.load``
falls back to an unrestricted pickle on its own). The user is asked once, in a terminal; elsewhere
``--trust-model`` has to say it. The answer holds for these bytes only: another file, or the same
file changed by one bit, is asked about again.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgectl.errors import TrustRequiredError
from edgectl.settings import load_settings

__all__ = ["TrustPolicy"]

_FILE = "trusted_models.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustPolicy:
    """How the question "may this file run code?" is answered.

    ``trusted`` answers yes for whatever is loaded (``--trust-model``). ``ask`` is called with the
    question where somebody is there to answer it; ``None`` means that nobody is.
    ``state_dir`` is where answers are remembered (the user's XDG state folder by default).
    ``digest`` narrows ``trusted`` to the file of that sha256.
    """

    trusted: bool = False
    ask: Callable[[str], bool] | None = None
    state_dir: Path | None = None
    digest: str | None = None

    def require(self, path: Path, digest: str, what: str) -> None:
        """Returns if ``path`` (of this sha256) may run code.

        Raises:
            TrustRequiredError: nobody said that it may, or somebody said that it may not.
        """
        if self.digest is not None and self.digest.removeprefix("sha256:") != digest:
            raise TrustRequiredError(
                f"{path} is not the file that was trusted: its sha256 is {digest}.",
                cause=f"The trusted one has {self.digest.removeprefix('sha256:')}.",
                next_step="Find out which of the two files is yours before you trust either.",
            )
        if self.trusted:
            self._remember(path, digest)
            return
        if digest in self._remembered():
            return
        if self.ask is None:
            raise TrustRequiredError(
                f"{path} is {what}: loading it can run any code it holds, so it was not loaded.",
                cause=f"Nobody has said that this file (sha256 {digest[:16]}...) is trusted.",
                next_step="If you made it, or trust who did: add --trust-model.",
            )
        question = (
            f"{path} is {what}. Loading it can run any code it holds.\n"
            f"sha256 {digest}\nDo you trust this file?"
        )
        if not self.ask(question):
            raise TrustRequiredError(
                f"{path} was not loaded, because it is not trusted.",
                next_step="Weights as .safetensors run no code: load them with --arch.",
            )
        self._remember(path, digest)

    def _store(self) -> Path:
        return (self.state_dir or load_settings().state_dir) / _FILE

    def _remembered(self) -> dict[str, object]:
        try:
            document = json.loads(self._store().read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        entries = document.get("sha256") if isinstance(document, dict) else None
        return entries if isinstance(entries, dict) else {}

    def _remember(self, path: Path, digest: str) -> None:
        entries = self._remembered()
        if digest in entries:
            return
        entries[digest] = {"path": str(path.absolute()), "since": int(time.time())}
        store = self._store()
        # A read-only home only means being asked again.
        with contextlib.suppress(OSError):
            store.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, temporary = tempfile.mkstemp(dir=store.parent, prefix=f".{_FILE}.")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"schema_version": 1, "sha256": entries}, file, indent=1, sort_keys=True)
            Path(temporary).replace(store)
