"""EfficientNet-Lite0 with its photograph, as files: the model of the demo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["write_efficientnet"]

ROOT = Path(__file__).resolve().parents[2]


def write_efficientnet(folder: Path) -> Path:
    """Writes ``efficientnet_lite0.pt2`` and ``cat.npy`` into a folder, and returns it."""
    script = ROOT / "scripts" / "demo_model.py"
    subprocess.run([sys.executable, str(script), str(folder)], check=True)
    return folder
