"""Checks many bundles on the virtual Pi in one session, each in a process of its own.

Deploying one model takes seconds, nearly all of it for starting Python under emulation; the
acceptance cases are many and small. What counts is the same code as in a deployment: the runner's
engine and its comparison, on aarch64.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgectl.emulator import status
from edgectl.remote.facts import gather_facts
from edgectl.remote.install import prepare_device
from edgectl.settings import load_settings
from support.virtual_pi import connection

_SCRIPT = """
import json, os, sys
from pathlib import Path

def check(folder):
    from edgectl_runner.contract import Manifest, from_document, to_document
    from edgectl_runner.execution import check_golden, load_engine
    manifest = from_document(Manifest, json.loads((folder / "manifest.json").read_text()))
    found = []
    for index, entry in enumerate(manifest.entry_points):
        engine = load_engine(manifest, folder, entry, 1)
        found += [to_document(c) for c in check_golden(manifest, folder, engine, index)]
    return {"comparisons": found, "machine": os.uname().machine}

for folder in sorted(Path(sys.argv[1]).iterdir()):
    pid = os.fork()
    if pid == 0:
        try:
            result = check(folder)
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
        (folder / "result.json").write_text(json.dumps(result))
        os._exit(0)
    os.waitpid(pid, 0)
print("done")
"""


@dataclass(frozen=True, slots=True)
class DeviceCheck:
    """What the virtual Pi found; ``error`` if it did not come to a comparison."""

    comparisons: tuple[Mapping[str, Any], ...] = ()
    error: str | None = None

    @property
    def passed(self) -> bool:
        return self.error is None and all(c["passed"] for c in self.comparisons)

    @property
    def worst(self) -> float:
        """Largest error relative to max|expected| over all calls and outputs."""
        return max((c["max_relative_error"] for c in self.comparisons), default=0.0)


def check_on_device(home: Path, bundles: Mapping[str, Path]) -> dict[str, DeviceCheck]:
    """Every bundle's golden calls on the virtual Pi of this home."""
    settings = load_settings({"EDGECTL_HOME": str(home)})
    with connection(home) as device:
        facts = gather_facts(device)
        handle = prepare_device(device, facts, cache_dir=settings.cache_dir / "wheels")
        info = status(settings=settings)
        if info is None:
            raise RuntimeError("the virtual Pi is down")
        folder = Path(info.root) / "home/pi/golden"
        shutil.rmtree(folder, ignore_errors=True)
        for name, bundle in bundles.items():
            with zipfile.ZipFile(bundle) as archive:
                archive.extractall(folder / name)
        program = handle.argv[: handle.argv.index("-m")]
        run = device.run([*program, "-c", _SCRIPT, "/home/pi/golden"], timeout_s=900.0)
    if b"done" not in run.stdout:
        raise RuntimeError(run.stderr.decode(errors="replace")[-2000:])
    return {name: _result(folder / name / "result.json") for name in bundles}


def _result(path: Path) -> DeviceCheck:
    if not path.exists():
        return DeviceCheck(error="the process died")
    document = json.loads(path.read_text())
    if "error" in document:
        return DeviceCheck(error=document["error"])
    if document["machine"] != "aarch64":
        raise RuntimeError(f"this ran on {document['machine']}")
    return DeviceCheck(comparisons=tuple(document["comparisons"]))
