#!/usr/bin/env python3
"""Modelled cycles of EfficientNet-Lite0 (1x3x224x224, one thread) beside the targets and the peers.

  efficientnet_cycles.py [--folder DIR] [--targets rpi3,rpi4,rpi5] [--precisions fp32,int8,fp16]
                         [--sysroot DIR] [--peers-python PYTHON] [--no-peers] [--json OUT.json]

The model, its ImageNet weights and the photograph come from scripts/demo_model.py, calibration
images for int8 from the crops tool beside picost. Every module is made by `edgectl compile` and its
output is compared with the golden output; ncnn, LiteRT (XNNPACK) and ONNX Runtime are converted and
counted in the same run. What is slow is kept in DIR by content; the first run takes ten minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cycles import PEER_NAMES, PEERS, PICOST, ROOT, Model, Workshop, add_arguments, pairs, workshop

# M modelled cycles. "floor" is what the lowering must reach without being clever about code
# generation, "goal" what the kernels are for.
FLOORS = {("rpi3", "fp32"): 255.0, ("rpi4", "fp32"): 122.0, ("rpi5", "fp32"): 68.0}
GOALS = {
    ("rpi3", "fp32"): 215.0,
    ("rpi4", "fp32"): 112.0,
    ("rpi5", "fp32"): 57.0,
    ("rpi3", "int8"): 175.0,
    ("rpi4", "int8"): 65.0,
    ("rpi5", "int8"): 24.0,
    ("rpi5", "fp16"): 29.0,
}
# How far the module's output may lie from its golden output, relative to the largest output: fp32
# from eager PyTorch, int8 from the integer program, fp16 from eager in float32.
ERROR_LIMITS = {"fp32": 1e-4, "int8": 1e-6, "fp16": 2e-2}


def efficientnet(folder: Path) -> Model:
    """The model, the photograph and the calibration images as files."""
    program = folder / "efficientnet_lite0.pt2"
    if not (program.exists() and (folder / "cat.npy").exists()):
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, str(ROOT / "scripts/demo_model.py"), str(folder)], check=True
        )
    calibration = folder / "calibration.npy"
    if not calibration.exists():
        crops = folder / "crops.npz"
        tool = PICOST.parent / "crops.py"
        subprocess.run([sys.executable, str(tool), str(crops), "--evaluation", "1"], check=True)
        with np.load(crops) as arrays:
            np.save(calibration, arrays["calibration"])
        crops.unlink()
    return Model(
        name="EfficientNet-Lite0",
        program=program,
        inputs=(folder / "cat.npy",),
        calibration=calibration,
    )


def row(shop: Workshop, model: Model, target: str, precision: str, peers: bool) -> dict[str, Any]:
    """One line of the table."""
    ours = shop.ours(model, target, precision)
    found = {kind: shop.peer(model, target, kind) for kind in (PEERS[precision] if peers else ())}
    return {
        "target": target,
        "precision": precision,
        "cycles_millions": ours.cycles_millions,
        "instructions_millions": ours.instructions_millions,
        "relative_error": ours.error,
        "floor": FLOORS.get((target, precision)),
        "goal": GOALS.get((target, precision)),
        "peers": {
            PEER_NAMES[kind.split("-")[0]]: cost if isinstance(cost, str) else cost.cycles_millions
            for kind, cost in found.items()
        },
    }


def main() -> None:
    """Prints the table; exit code 1 when an output is wrong or a goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    options = parser.parse_args()
    shop = workshop(options)
    model = efficientnet(options.folder)
    print("M modelled cycles per inference")
    names = ("ncnn", "LiteRT", "ORT")
    print(
        f"{'':12}{'edgectl':>9}{'goal':>7}{'':>8}"
        + "".join(f"{n:>9}" for n in names)
        + f"{'error':>10}"
    )
    rows, failed = [], False
    for target, precision in pairs(options):
        line = row(shop, model, target, precision, not options.no_peers)
        rows.append(line)
        cycles, goal, error = line["cycles_millions"], line["goal"], line["relative_error"]
        wrong = error > ERROR_LIMITS[precision]
        verdict = (
            "WRONG" if wrong else "" if goal is None else "met" if cycles <= goal else "missed"
        )
        failed |= verdict in ("WRONG", "missed")
        cells = [line["peers"].get(name, "-") for name in names]
        shown = "".join(f"{c:>9.1f}" if isinstance(c, float) else f"{'-':>9}" for c in cells)
        bound = f"{goal:>7.0f}" if goal is not None else f"{'-':>7}"
        print(
            f"{target} {precision:<7}{cycles:>9.1f}{bound}{verdict:>8}{shown}{error:>10.1e}",
            flush=True,
        )
        for name, cell in line["peers"].items():
            if isinstance(cell, str):
                print(f"    {name} {cell}")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
