#!/usr/bin/env python3
"""Modelled cycles of well-known models (random weights, one thread) beside ncnn, LiteRT and ORT.

  models_cycles.py [--models NAME,...] [--targets rpi3,rpi4,rpi5] [--precisions fp32,int8,fp16]
                   [--folder DIR] [--sysroot DIR] [--peers-python PYTHON] [--no-peers] [--json OUT]

The models are those of tests/support/models.py. Every module is made by `edgectl compile` and its
output compared with the golden output. The ratio is to the best peer that can run the model; the
geometric mean of the ratios closes each table. What is slow is kept in DIR by content.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from cycles import PEER_NAMES, PEERS, ROOT, Model, Workshop, add_arguments, pairs, say, workshop

NAMES = (
    "mobilenet_v2",
    "mobilenet_v3_large",
    "resnet18",
    "squeezenet1_1",
    "ds_cnn",
    "minilm",
    "vit_tiny",
    "yolo_n",
)
ERROR_LIMITS = {"fp32": 1e-4, "int8": 1e-3, "fp16": 5e-2}


def exported(name: str, folder: Path) -> Model:
    """The model and its inputs as files; made once."""
    import torch

    sys.path.insert(0, str(ROOT / "tests/support"))
    from models import MODELS

    here = folder / "models" / name
    program = here / f"{name}.pt2"
    if not program.exists():
        say(f"export {name}")
        here.mkdir(parents=True, exist_ok=True)
        module, inputs = MODELS[name]()
        with torch.no_grad():
            torch.export.save(torch.export.export(module, inputs), program)
        for index, value in enumerate(inputs):
            np.save(here / f"input_{index}.npy", value.numpy())
        first = inputs[0].numpy()
        if first.dtype == np.float32:
            noise = np.random.default_rng(0).normal(0, 1, (8, *first.shape[1:]))
            np.save(here / "calibration.npy", noise.astype(np.float32))
    calibration = here / "calibration.npy"
    return Model(
        name=name,
        program=program,
        inputs=tuple(sorted(here.glob("input_*.npy"))),
        calibration=calibration if calibration.exists() else None,
    )


def row(shop: Workshop, model: Model, target: str, precision: str, peers: bool) -> dict[str, Any]:
    """One line: our cycles, each peer's cycles or why it has none, and the ratio to the best."""
    line: dict[str, Any] = {"model": model.name, "target": target, "precision": precision}
    if precision == "int8" and model.calibration is None:
        return {**line, "failed": "its input is not of floats: no calibration data here"}
    try:
        ours = shop.ours(model, target, precision)
    except SystemExit as error:
        return {**line, "failed": str(error)[-300:]}
    found = {k: shop.peer(model, target, k) for k in (PEERS[precision] if peers else ())}
    cycles = [cost.cycles_millions for cost in found.values() if not isinstance(cost, str)]
    return {
        **line,
        "cycles_millions": ours.cycles_millions,
        "instructions_millions": ours.instructions_millions,
        "relative_error": ours.error,
        "peers": {
            PEER_NAMES[kind.split("-")[0]]: cost if isinstance(cost, str) else cost.cycles_millions
            for kind, cost in found.items()
        },
        "ratio": ours.cycles_millions / min(cycles) if cycles else None,
    }


def show(line: dict[str, Any]) -> None:
    """Prints one line of the table."""
    if "failed" in line:
        print(f"{line['model']:<20} failed: {line['failed']}", flush=True)
        return
    cells = [line["peers"].get(name, "-") for name in PEER_NAMES.values()]
    shown = "".join(f"{c:>9.1f}" if isinstance(c, float) else f"{'-':>9}" for c in cells)
    ratio = f"{line['ratio']:>8.2f}" if line["ratio"] is not None else f"{'-':>8}"
    wrong = "  WRONG" if line["relative_error"] > ERROR_LIMITS[line["precision"]] else ""
    cycles, error = line["cycles_millions"], line["relative_error"]
    print(f"{line['model']:<20}{cycles:>9.1f}{shown}{ratio}{error:>10.1e}{wrong}", flush=True)
    for name, cell in line["peers"].items():
        if isinstance(cell, str):
            print(f"    {name} {cell}")


def main() -> None:
    """Prints one table per core and precision."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--models", default=",".join(NAMES))
    options = parser.parse_args()
    shop = workshop(options)
    rows: list[dict[str, Any]] = []
    for target, precision in pairs(options):
        print(f"\n{target} {precision}: M modelled cycles per inference")
        heads = "".join(f"{name:>9}" for name in PEER_NAMES.values())
        print(f"{'':<20}{'edgectl':>9}{heads}{'ratio':>8}{'error':>10}")
        ratios = []
        for name in options.models.split(","):
            model = exported(name, options.folder)
            line = row(shop, model, target, precision, not options.no_peers)
            rows.append(line)
            show(line)
            if line.get("ratio"):
                ratios.append(line["ratio"])
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"geometric mean over the best peer {mean:.2f}, worst {max(ratios):.2f}")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
