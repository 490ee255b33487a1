"""Bundles of a few kilobytes, compiled by IREE from MLIR text: no torch, a second each.

`LoopbackDevice` stands in for a device: commands run on this computer in a home folder of their
own.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import json
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edgectl.remote.base import CommandResult
from edgectl.remote.install import RunnerHandle, prepare_device
from edgectl.remote.local import LocalDevice
from edgectl.remote.wheelhouse import Wheel, WheelSet
from edgectl_runner.contract import (
    EntryPoint,
    FileEntry,
    GoldenCall,
    GoldenLimits,
    Manifest,
    OutputBinding,
    StateSpec,
    TensorSpec,
    to_document,
)

AFFINE = """
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %two = arith.constant dense<2.0> : tensor<4x8xf32>
  %one = arith.constant dense<1.0> : tensor<4x8xf32>
  %0 = arith.mulf %x, %two : tensor<4x8xf32>
  %1 = arith.addf %0, %one : tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}
"""

COUNTER = """
func.func @step(%x: tensor<4xf32>, %sum: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %half = arith.constant dense<0.5> : tensor<4xf32>
  %0 = arith.addf %x, %sum : tensor<4xf32>
  %1 = arith.mulf %0, %half : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
"""

TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
CPUS = {"x86_64": "generic", "aarch64": "cortex-a72"}


@cache
def compile_mlir(text: str, architecture: str = "x86_64") -> bytes:
    """The ``.vmfb`` of MLIR text for that architecture's plainest processor."""
    from iree.compiler import compile_str

    module: bytes = compile_str(
        text,
        target_backends=["llvm-cpu"],
        extra_args=[
            f"--iree-llvmcpu-target-triple={TRIPLES[architecture]}",
            f"--iree-llvmcpu-target-cpu={CPUS[architecture]}",
        ],
    )
    return module


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def write(
    path: Path,
    files: Mapping[str, bytes],
    entry_points: Sequence[EntryPoint],
    golden: Sequence[GoldenCall],
    **changes: Any,
) -> Path:
    """A bundle file with these members and a manifest that fits them."""
    fields: dict[str, Any] = {
        "name": "tiny",
        "target": "host",
        "cpu": "generic",
        "cpu_features": (),
        "architecture": os.uname().machine,
        "iree_version": "3.13.0",
        "precision": "fp32",
        "dialect": "linalg",
        "module": "module.vmfb",
        "entry_points": tuple(entry_points),
        "golden": tuple(golden),
        "golden_limits": GoldenLimits(),
        "files": {
            name: FileEntry(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
            for name, data in files.items()
        },
    }
    fields.update(changes)
    document = to_document(Manifest(**fields))
    manifest = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("manifest.json", manifest)
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def affine_bundle(
    path: Path,
    *,
    module: bytes | None = None,
    expected_offset: float = 0.0,
    extra: Mapping[str, bytes] | None = None,
    **changes: Any,
) -> Path:
    """y = 2 x + 1 on 4x8 floats; ``expected_offset`` makes the golden output wrong by that."""
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    spec = TensorSpec(name="x", shape=(4, 8), dtype="float32")
    files = {
        "module.vmfb": module if module is not None else compile_mlir(AFFINE),
        "golden/0/input_0.npy": npy(x),
        "golden/0/output_0.npy": npy(np.float32(2) * x + np.float32(1 + expected_offset)),
        **(extra or {}),
    }
    entry = EntryPoint(
        function="main",
        inputs=(spec,),
        outputs=(
            OutputBinding(
                name="y",
                source="result",
                index=0,
                spec=TensorSpec(name="y", shape=(4, 8), dtype="float32"),
            ),
        ),
        result_count=1,
    )
    call = GoldenCall(
        entry_point=0, inputs=("golden/0/input_0.npy",), outputs=("golden/0/output_0.npy",)
    )
    return write(path, files, [entry], [call], **changes)


def counter_bundle(path: Path) -> Path:
    """A stateful model: y = x + s, then s = y / 2; three golden calls from s = 1."""
    state = np.ones(4, np.float32)
    files = {"module.vmfb": compile_mlir(COUNTER), "state/sum.npy": npy(state)}
    calls = []
    for number in range(3):
        x = np.full(4, number + 1, np.float32)
        y = x + state
        state = y * np.float32(0.5)
        files[f"golden/{number}/input_0.npy"] = npy(x)
        files[f"golden/{number}/output_0.npy"] = npy(y)
        calls.append(
            GoldenCall(
                entry_point=0,
                inputs=(f"golden/{number}/input_0.npy",),
                outputs=(f"golden/{number}/output_0.npy",),
            )
        )
    spec = TensorSpec(name="x", shape=(4,), dtype="float32")
    entry = EntryPoint(
        function="step",
        inputs=(spec,),
        outputs=(OutputBinding(name="y", source="result", index=0, spec=spec),),
        states=(
            StateSpec(
                spec=TensorSpec(name="sum", shape=(4,), dtype="float32"),
                argument_index=1,
                result_index=1,
                initial="state/sum.npy",
            ),
        ),
        result_count=2,
    )
    return write(path, files, [entry], calls)


class LoopbackDevice(LocalDevice):
    """This computer as a device, with a root folder of its own; notes what was asked of it."""

    def __init__(self, root: Path):
        super().__init__(environment={"HOME": str(root.parent), "EDGECTL_ROOT": str(root)})
        self.root = root
        self.sent: list[tuple[str, int]] = []
        self.commands: list[tuple[str, ...]] = []

    def run(self, argv: Sequence[str], **options: Any) -> CommandResult:
        self.commands.append(tuple(argv))
        return super().run(argv, **options)

    def put(self, source: Path | bytes, destination: str, **options: Any) -> int:
        sent = super().put(source, destination, **options)
        self.sent.append((destination, sent))
        return sent


@cache
def _scratch() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="edgectl-prepared-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def empty_wheels() -> WheelSet:
    """A wheel set without packages: the test's own Python has NumPy and the runtime."""
    path = _scratch() / "nothing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("edgectl_test_nothing.py", "")
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    wheel = Wheel(path=path, sha256=digest, size_bytes=len(data))
    return WheelSet(digest=digest[:16], wheels=(wheel,))


def ready_handle(device: LoopbackDevice) -> RunnerHandle:
    """The runner on the device, run by this Python with its own packages."""
    device.root.parent.mkdir(parents=True, exist_ok=True)
    if not device.root.exists() and type(device) is LoopbackDevice:
        made, template = _prepared_once()
        shutil.copytree(template, device.root)
        argv = tuple(a.replace(str(template), str(device.root)) for a in made.argv)
        return replace(made, root=str(device.root), argv=argv)
    wheels = empty_wheels()
    return prepare_device(device, python=sys.executable, fetch=lambda _python, cache=None: wheels)


@cache
def _prepared_once() -> tuple[RunnerHandle, Path]:
    """A prepared root folder to copy: what preparing costs is paid once per test run."""
    device = LoopbackDevice(_scratch() / "home" / "edgectl")
    device.root.parent.mkdir()
    wheels = empty_wheels()
    handle = prepare_device(device, python=sys.executable, fetch=lambda _python, cache=None: wheels)
    return handle, device.root
