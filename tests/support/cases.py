"""The acceptance models beside this project: ``../shared/cases/bug_models.py``."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import ModuleType

FILE = Path(__file__).resolve().parents[3] / "shared/cases/bug_models.py"


@functools.cache
def bug_models() -> ModuleType:
    """The module; one without cases where it is not beside the checkout.

    `tests/e2e/models` says so in that case. A clone of the project alone can pass its own tests, and
    an error here would keep all others from being collected.
    """
    if not FILE.exists():
        empty = ModuleType("bug_models")
        for name in ("INT8", "EXPORT_FAILS", "STATEFUL", "MUTATES_INPUT"):
            setattr(empty, name, set())
        empty.CASES, empty.DYNAMIC = {}, {}  # type: ignore[attr-defined]
        return empty
    spec = importlib.util.spec_from_file_location("bug_models", FILE)
    if spec is None or spec.loader is None:
        raise ImportError(FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
