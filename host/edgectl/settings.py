"""Where edgectl keeps its files, and what the environment says, read once.

Everything follows the XDG base directories; ``EDGECTL_HOME`` puts all of it under one folder
(tests and throw-away machines use that).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

__all__ = ["Settings", "load_settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Folders of this user.

    ``config_dir`` holds what people edit (devices, known hosts, keys), ``state_dir`` what edgectl
    remembers (trusted digests, logs, histories), ``cache_dir`` what can be made again.
    """

    config_dir: Path
    state_dir: Path
    cache_dir: Path
    device: str | None = None
    target: str | None = None

    @property
    def log_dir(self) -> Path:
        """Where the words of compilers go."""
        return self.state_dir / "logs"


def load_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Reads the environment (the process's own by default)."""
    env = os.environ if environment is None else environment
    home = env.get("EDGECTL_HOME")
    if home:
        base = Path(home).expanduser()
        config, state, cache = base / "config", base / "state", base / "cache"
    else:
        config = platformdirs.user_config_path("edgectl")
        state = platformdirs.user_state_path("edgectl")
        cache = platformdirs.user_cache_path("edgectl")
    return Settings(
        config_dir=config,
        state_dir=state,
        cache_dir=cache,
        device=env.get("EDGECTL_DEVICE") or None,
        target=env.get("EDGECTL_TARGET") or None,
    )
