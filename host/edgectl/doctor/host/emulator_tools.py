"""Are the tools there that the virtual Pi is made with?"""

from __future__ import annotations

import shutil

from edgectl.doctor.result import CheckResult, ok, warning
from edgectl.settings import Settings

__all__ = ["check"]

_TOOLS = (
    (("qemu-aarch64-static", "qemu-aarch64"), "qemu-user-static"),
    (("mmdebstrap",), "mmdebstrap"),
)


def check(_settings: Settings, path: str | None = None) -> CheckResult:
    """Only ``--device emulator`` needs them; ``path`` is searched instead of PATH."""
    missing = [
        package
        for names, package in _TOOLS
        if not any(shutil.which(name, path=path) for name in names)
    ]
    if missing:
        return warning(
            "virtual Pi",
            "host",
            f"{', '.join(missing)} not installed; --device emulator does not work without",
            fix=f"sudo apt install {' '.join(missing)}",
        )
    return ok("virtual Pi", "host", "its tools are installed")
