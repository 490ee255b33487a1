"""Kernels built for each core and run under qemu, or for this computer with sanitizers."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from edgectl.codegen.kernels.blob import pack_blob, plan
from edgectl.codegen.kernels.catalog import Kernel
from edgectl.codegen.kernels.objects import build_object, kernel_sources
from edgectl.codegen.kernels.shapes import Convolution

HERE = Path(__file__).parent
RunKernel = Callable[[Kernel, str, Sequence[tuple[Convolution, np.ndarray]]], list[np.ndarray]]


@pytest.fixture(scope="session")
def object_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


def _write_cases(
    kernel: Kernel, cases: Sequence[tuple[Convolution, np.ndarray]], path: Path
) -> list[int]:
    sizes = []
    with path.open("wb") as file:
        for conv, data in cases:
            split = plan(conv, kernel.layout, cores=4, work_per_group=20_000)
            assert split is not None
            blob = pack_blob(conv, kernel.layout, split)
            size = conv.geometry.rows * conv.geometry.out_c * data.itemsize
            file.write(struct.pack("<5I", data.nbytes, len(blob), size, split.groups, 0))
            file.write(np.ascontiguousarray(data).tobytes())
            file.write(blob)
            sizes.append(size)
    return sizes


def _read_results(
    path: Path, sizes: list[int], cases: Sequence[tuple[Convolution, np.ndarray]]
) -> list[np.ndarray]:
    data, results = path.read_bytes(), []
    assert len(data) == sum(sizes)
    for size, (conv, given) in zip(sizes, cases, strict=True):
        g = conv.geometry
        part, data = data[:size], data[size:]
        results.append(np.frombuffer(part, given.dtype).reshape(g.batch, g.out_h, g.out_w, g.out_c))
    return results


@pytest.fixture(scope="session")
def run_on_core(object_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> RunKernel:
    """The NEON kernel on an emulated core, every buffer fenced by an untouchable page."""
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if qemu is None:
        pytest.skip("qemu-aarch64 is not installed (apt-get install qemu-user)")
    folder = tmp_path_factory.mktemp("qemu")

    def run(
        kernel: Kernel, cpu: str, cases: Sequence[tuple[Convolution, np.ndarray]]
    ) -> list[np.ndarray]:
        program = folder / f"{kernel.name}-{cpu}"
        if not program.exists():
            built = build_object(kernel.source, cpu, cache_dir=object_dir, in_order=kernel.in_order)
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "ziglang",
                    "cc",
                    "-target",
                    "aarch64-linux-musl",
                    "-O1",
                    "-static",
                    f"-DKERNEL_SYMBOL={kernel.symbol}",
                    str(HERE / "harness.c"),
                    str(built),
                    "-o",
                    str(program),
                ],
                check=True,
                capture_output=True,
            )
        sizes = _write_cases(kernel, cases, folder / "cases")
        done = subprocess.run(
            [qemu, "-cpu", cpu, str(program), str(folder / "cases"), str(folder / "results")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{kernel.name} on {cpu}: {done.returncode} {done.stderr}"
        return _read_results(folder / "results", sizes, cases)

    return run


@pytest.fixture(scope="session")
def run_sanitized(tmp_path_factory: pytest.TempPathFactory) -> RunKernel:
    """The portable form on this computer, with address and undefined-behaviour sanitizers."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    folder = tmp_path_factory.mktemp("sanitized")

    def run(
        kernel: Kernel, cpu: str, cases: Sequence[tuple[Convolution, np.ndarray]]
    ) -> list[np.ndarray]:
        program = folder / f"{kernel.name}-{cpu}"
        if not program.exists():
            in_order = ["-DEDGECTL_IN_ORDER"] if kernel.in_order else []
            subprocess.run(
                [
                    "gcc",
                    "-O1",
                    "-g",
                    "-fsanitize=address,undefined",
                    "-fno-sanitize-recover=all",
                    "-DUSE_MALLOC",
                    "-DEDGECTL_PORTABLE",
                    "-ffp-contract=off",
                    "-Wno-unknown-pragmas",
                    *in_order,
                    f"-DKERNEL_SYMBOL={kernel.symbol}",
                    str(HERE / "harness.c"),
                    str(kernel_sources() / kernel.source),
                    "-o",
                    str(program),
                ],
                check=True,
                capture_output=True,
            )
        sizes = _write_cases(kernel, cases, folder / "cases")
        done = subprocess.run(
            [str(program), str(folder / "cases"), str(folder / "results")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return _read_results(folder / "results", sizes, cases)

    return run
