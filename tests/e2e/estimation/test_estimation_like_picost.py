"""Our estimate beside another tool of the same kind, on a real network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PICOST = ROOT.parent / "shared" / "tools" / "picost"

pytestmark = [
    pytest.mark.device,
    pytest.mark.slow,
    pytest.mark.skipif(not PICOST.is_dir(), reason=f"picost is not in {PICOST}"),
]


@pytest.fixture(scope="module")
def sysroot(tmp_path_factory):
    """picost's own file system; EDGECTL_SYSROOT names one that is there already."""
    given = os.environ.get("EDGECTL_SYSROOT")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("picost") / "sysroot"
    subprocess.run(["bash", str(PICOST / "sysroot.sh"), str(folder)], check=True)
    return folder


@pytest.mark.parametrize("target", ["rpi3", "rpi4", "rpi5"])
def test_instructions_and_cycles_agree(virtual_pi, efficientnet, sysroot, tmp_path, target):
    bundle = tmp_path / "model.edgectl"
    virtual_pi(
        "compile", efficientnet / "efficientnet_lite0.pt2", "--input", efficientnet / "cat.npy",
        "--target", target, "--trust-model", "-q", "-o", bundle,
    ).expect(0)  # fmt: skip
    ours = virtual_pi("estimate", bundle, "--json").expect(0).document
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path)
    cpu = {"rpi3": "cortex-a53", "rpi4": "cortex-a72", "rpi5": "cortex-a76"}[target]
    command = [sys.executable, str(PICOST / "picost.py"), "--cpu", cpu, "--sysroot", str(sysroot)]
    command += ["--json", "vmfb", str(tmp_path / "module.vmfb")]
    command += [str(tmp_path / "golden/0/input_0.npy")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    theirs = json.loads(run.stdout)
    print(target, ours["instructions"], ours["pipeline_cycles"], theirs)
    assert ours["instructions"] == pytest.approx(theirs["instructions"], rel=0.03)
    assert ours["pipeline_cycles"] == pytest.approx(theirs["cycles"], rel=0.03)
    inside = sum(layer["pipeline_cycles"] for layer in ours["layers"])
    assert inside == pytest.approx(ours["pipeline_cycles"], rel=0.02), "the layers are nearly all"
