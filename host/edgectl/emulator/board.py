"""What the virtual Pi says it is: the files by which software tells one board from another."""

from __future__ import annotations

from pathlib import Path

from edgectl_toolchains import Target

__all__ = ["board_files"]

_IMPLEMENTER = {"0xd03": ("4", "0"), "0xd08": ("3", "0"), "0xd0b": ("1", "4")}  # revision, variant
_FEATURES = {
    "+crc": "crc32",
    "+aes": "aes pmull",
    "+sha2": "sha1 sha2",
    "+lse": "atomics",
    "+fullfp16": "fphp asimdhp",
    "+rdm": "asimdrdm",
    "+dotprod": "asimddp",
}


def board_files(target: Target, folder: Path) -> dict[Path, str]:
    """Writes the files below ``folder``; each with the path that it stands for."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["fp", "asimd", "evtstrm", "cpuid"]
    words += [text for flag, text in _FEATURES.items() if flag in target.cpu_features]
    revision, variant = _IMPLEMENTER.get(target.part, ("0", "0"))
    lines = []
    for core in range(target.cores):
        lines += [
            f"processor\t: {core}",
            "BogoMIPS\t: 108.00",
            f"Features\t: {' '.join(words)}",
            "CPU implementer\t: 0x41",
            "CPU architecture: 8",
            f"CPU variant\t: 0x{variant}",
            f"CPU part\t: {target.part}",
            f"CPU revision\t: {revision}",
            "",
        ]
    model = target.title.split(":")[0].split(" (")[0]
    lines.append(f"Model\t\t: {model} (virtual)")
    cpuinfo = folder / "cpuinfo"
    cpuinfo.write_text("\n".join(lines) + "\n")
    return {cpuinfo: "/proc/cpuinfo"}
