"""A lowered module as a serialized TOSA file (a ``.tosa`` flatbuffer), for other tools.

Arm's serializer comes in the package ``tosa-tools``, which pins an older NumPy than ours, so it
lives in an environment of its own and is run as a program.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from edgectl.errors import ConfigurationError, UnsupportedModelError
from edgectl.records import Dialect, LoweredModule

__all__ = ["TOOLS_VARIABLE", "write_tosa"]

TOOLS_VARIABLE = "EDGECTL_TOSA_TOOLS"


def write_tosa(lowered: LoweredModule, path: Path) -> Path:
    """Writes the module; its inputs are called ``TosaInput_0``, ..., its results ``TosaOutput_0``.

    Args:
        lowered: pure TOSA, as `lower(..., strict_tosa=True)` gives it.
        path: the file to write; an existing one is replaced.

    Raises:
        UnsupportedModelError: the module is in another dialect, or holds what TOSA's
            specification does not (the serializer's first complaint is in the message).
        ConfigurationError: the serializer is not installed.
    """
    if lowered.dialect is not Dialect.TOSA:
        raise UnsupportedModelError(
            f"The model was lowered to {lowered.dialect}, so there is no TOSA file of it.",
            next_step="`edgectl explain MODEL` shows which operation TOSA cannot say.",
        )
    tool = Path(os.environ.get(TOOLS_VARIABLE, "")) / "tosa-opt"
    if not os.environ.get(TOOLS_VARIABLE) or not tool.is_file():
        raise ConfigurationError(
            "Arm's TOSA serializer is not installed.",
            cause=f"{TOOLS_VARIABLE} does not name a folder with tosa-opt.",
            next_step="python3 -m venv tosa && tosa/bin/pip install tosa-tools && "
            f"export {TOOLS_VARIABLE}=$PWD/tosa/bin",
        )
    with tempfile.TemporaryDirectory(prefix="edgectl-tosa-") as folder:
        source, result = Path(folder) / "module.mlirbc", Path(folder) / "module.tosa"
        source.write_bytes(lowered.bytecode)
        run = subprocess.run(
            [
                str(tool),
                str(source),
                "--tosa-attach-target=profiles=pro_int,pro_fp",
                "--tosa-serialize",
                f"--tosa-flatbuffer-filename={result}",
                "-o",
                os.devnull,
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        if run.returncode or not result.exists():
            said = [line for line in run.stderr.splitlines() if "error" in line]
            first = (
                said[0].split("error:")[-1].strip() if said else f"it ended with {run.returncode}"
            )
            raise UnsupportedModelError(
                f"Arm's serializer refused the module: {first[:200]}",
                cause="What IREE takes as TOSA is a little more than the specification.",
            )
        path.write_bytes(result.read_bytes())
    return path
