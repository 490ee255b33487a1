"""Kernels in a real module: found, inserted, accepted by IREE's compiler, right when run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from modules import Module

from edgectl.codegen.compile import compiler_flags, run_compiler
from edgectl.codegen.kernels import KernelResult, apply
from edgectl_toolchains import load_target

# local-task as on the device: kernels run on IREE's worker threads, with their stacks.
RUN = """
import sys, numpy as np, iree.runtime as rt
module, given, result = sys.argv[1:]
context = rt.SystemContext(config=rt.Config("local-task"))
loaded = rt.VmModule.mmap(context.instance, module)
context.add_vm_module(loaded)
np.save(result, np.asarray(context.modules[loaded.name]["main"](np.load(given)).to_host()))
"""


def _network(element: str) -> Module:
    """A first layer, an expansion, a padded depthwise layer and a projection."""
    rng = np.random.default_rng(5)
    net = Module((1, 20, 20, 3), element)

    def layer(x: str, shape: tuple[int, ...], *, fan_in: int, stride: int = 1, pad: int = 0) -> str:
        out = shape[2] if shape[3] == 1 and shape[0] == 3 else shape[0]
        if element == "i8":
            weights = rng.integers(-127, 128, shape).astype(np.int8)
            bias = rng.integers(-3000, 3000, out).astype(np.int32)
            total = net.convolution(x, weights, bias, stride=stride, pad=pad)
            scale = rng.uniform(0.5, 2.0, out) * 40 / (127 * 74 * fan_in**0.5)
            return net.requantize(total, scale, -3, -3, 127)
        dtype = np.float16 if element == "f16" else np.float32
        weights = (rng.standard_normal(shape) * (2 / fan_in) ** 0.5).astype(dtype)
        bias = rng.standard_normal(out).astype(dtype)
        return net.clamp(net.convolution(x, weights, bias, stride=stride, pad=pad), 0.0, 6.0)

    x = layer(
        net.pad("%x", [0, 1, 0, 1], -3 if element == "i8" else 0),
        (16, 3, 3, 3),
        fan_in=27,
        stride=2,
    )
    x = layer(x, (48, 1, 1, 16), fan_in=16)
    x = layer(net.pad(x, [1, 1, 1, 1], -3 if element == "i8" else 0), (3, 3, 48, 1), fan_in=9)
    x = layer(x, (24, 1, 1, 48), fan_in=48)
    net.result = x
    return net


def _winograd_network() -> Module:
    """A strided first layer and two 3x3 layers with stride 1."""
    rng = np.random.default_rng(6)
    net = Module((1, 20, 20, 3), "f32")

    def layer(x: str, inputs: int, outputs: int, stride: int = 1) -> str:
        weights = rng.standard_normal((outputs, 3, 3, inputs)) * (2 / (9 * inputs)) ** 0.5
        bias = rng.standard_normal(outputs).astype(np.float32)
        total = net.convolution(x, weights.astype(np.float32), bias, stride=stride, pad=1)
        return net.clamp(total, 0.0, 6.0)

    net.result = layer(layer(layer("%x", 3, 64), 64, 128), 128, 40)
    return net


def _compile(
    module: bytes, target_name: str, folder: Path, objects: Path
) -> tuple[bytes, KernelResult]:
    target = load_target(target_name)
    flags = compiler_flags(target)

    def run(source: bytes, more: Sequence[str]) -> bytes:
        return run_compiler(source, more, log_dir=folder)

    result = apply(module, target, flags, run_compiler=run, object_dir=objects)
    return run(result.module, [*flags, *result.flags]), result


@pytest.mark.parametrize("target", ["rpi3", "rpi4", "rpi5"])
@pytest.mark.parametrize("element", ["i8", "f32"])
def test_every_layer_gets_a_kernel_and_the_module_compiles(tmp_path, object_dir, element, target):
    net = _network(element)
    vmfb, result = _compile(net.text(net.result), target, tmp_path, object_dir)
    assert [bool(c.kernel) for c in result.choices] == [True] * 4, result.choices
    assert len({c.dispatch for c in result.choices}) == 4
    assert len(vmfb) > 10_000


def test_a_target_without_kernels_keeps_the_module_as_it_is(tmp_path):
    net = _network("f32")
    text = net.text(net.result)
    result = apply(text, load_target("host"), (), run_compiler=lambda m, f: m, object_dir=tmp_path)
    assert result.module is text
    assert result.flags == ()
    assert "no kernels for host" in result.choices[0].reason


def test_what_cannot_be_a_kernel_says_why(tmp_path):
    rng = np.random.default_rng(1)
    net = Module((1, 16, 16, 32), "i8")
    weights = rng.integers(-127, 128, (32, 1, 1, 32)).astype(np.int8)
    weights[3, 0, 0, 3] = -128
    total = net.convolution("%x", weights, np.zeros(32, np.int32))
    first = net.requantize(total, np.full(32, 1e-3), 0)
    weights = rng.integers(-127, 128, (32, 1, 1, 32)).astype(np.int8)
    second = net.convolution(first, weights, np.zeros(32, np.int32))  # stays i32
    target = load_target("rpi4")
    result = apply(net.text(second), target, (), run_compiler=lambda m, f: m, object_dir=tmp_path)
    assert [c.kernel for c in result.choices] == ["", ""]
    assert "-128" in result.choices[0].reason
    assert "requantization" in result.choices[1].reason


@pytest.mark.device
@pytest.mark.parametrize(
    ("element", "target", "cpu"),
    [
        ("i8", "rpi3", "cortex-a53"),
        ("i8", "rpi4", "cortex-a72"),
        ("i8", "rpi5", "cortex-a76"),
        ("f32", "rpi4", "cortex-a72"),
        ("winograd", "rpi4", "cortex-a72"),
        ("f16", "rpi5", "cortex-a76"),
    ],
)
def test_with_and_without_kernels_the_results_agree(tmp_path, object_dir, element, target, cpu):
    sysroot, qemu = os.environ.get("EDGECTL_SYSROOT"), shutil.which("qemu-aarch64")
    if sysroot is None or qemu is None:
        pytest.skip(
            "set EDGECTL_SYSROOT to an aarch64 sysroot with IREE's runtime, install qemu-user"
        )
    net = _winograd_network() if element == "winograd" else _network(element)
    text = net.text(net.result)
    vmfb, result = _compile(text, target, tmp_path, object_dir)
    assert ("f32_winograd" in {c.kernel for c in result.choices}) == (element == "winograd")
    (tmp_path / "with.vmfb").write_bytes(vmfb)
    plain = run_compiler(text, compiler_flags(load_target(target)), log_dir=tmp_path)
    (tmp_path / "without.vmfb").write_bytes(plain)
    rng = np.random.default_rng(2)
    shape = (1, 20, 20, 3)
    dtype = {"i8": np.int8, "f16": np.float16}.get(element, np.float32)
    data = rng.integers(-128, 128, shape) if element == "i8" else rng.standard_normal(shape)
    np.save(tmp_path / "given.npy", data.astype(dtype))
    environment = {
        **os.environ,
        "PYTHONHOME": f"{sysroot}/usr",
        "PYTHONPATH": f"{sysroot}/opt/site-packages",
    }
    results = []
    for kind in ("with", "without"):
        subprocess.run(
            [
                qemu,
                "-cpu",
                cpu,
                "-L",
                sysroot,
                f"{sysroot}/usr/bin/python3.11",
                "-c",
                RUN,
                str(tmp_path / f"{kind}.vmfb"),
                str(tmp_path / "given.npy"),
                str(tmp_path / f"{kind}.npy"),
            ],
            check=True,
            env=environment,
            capture_output=True,
        )
        results.append(np.load(tmp_path / f"{kind}.npy"))
    assert results[1].std() > 0
    if element == "i8":
        assert np.array_equal(*results)
    else:
        bound = {"f32": 1e-5, "winograd": 1e-5, "f16": 2e-2}[element]
        difference = np.abs(results[0].astype(np.float64) - results[1].astype(np.float64)).max()
        assert difference <= bound * np.abs(results[1]).max()
