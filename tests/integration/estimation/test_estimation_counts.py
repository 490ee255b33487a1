"""Estimates of small models, counted under a real emulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from edgectl.bundle import write_bundle
from edgectl.codegen import compile_module, load_target_or_fail
from edgectl.estimation import estimate_bundle, static_cost
from edgectl.estimation import tools as estimation_tools
from edgectl.lowering import lower
from edgectl.settings import load_settings
from support.exported import export

pytestmark = pytest.mark.device


class Net(torch.nn.Module):
    """Twice the same work, and once four times as much."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(64, 64)
        self.second = torch.nn.Linear(64, 64)
        self.wide = torch.nn.Linear(64, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Three products."""
        return self.wide(torch.relu(self.second(torch.relu(self.first(x)))))


@pytest.fixture(scope="module")
def settings(virtual_pi):
    return load_settings({"EDGECTL_HOME": str(virtual_pi.home)})


def bundle(tmp_path: Path, settings, *, kernels: bool = True, target: str = "rpi4", batch=49):
    lowered = lower(export(Net(), torch.randn(batch, 64)))
    compiled = compile_module(
        lowered, load_target_or_fail(target), kernels=kernels, settings=settings
    )
    return write_bundle(compiled, tmp_path / "net.edgectl")


@pytest.mark.parametrize("kernels", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_layers_cost_what_their_work_says(tmp_path, settings, kernels):
    estimate = estimate_bundle(bundle(tmp_path, settings, kernels=kernels), settings=settings)
    products = {x.call.module: x for x in estimate.layers if x.call.macs}
    assert set(products) == {"first", "second", "wide"}
    first, second, wide = (products[n].instructions for n in ("first", "second", "wide"))
    assert first == pytest.approx(second, rel=0.02), "the same work"
    assert 3 < wide / first < 5, "four times the work"
    # A vector instruction does four multiply-accumulates at most.
    assert wide > 49 * 64 * 256 / 4
    assert products["wide"].pipeline_cycles >= 49 * 64 * 256 / 4, "the A72 has one such a cycle"
    inside = sum(x.instructions for x in estimate.layers)
    assert inside < estimate.instructions < inside + 1e6, "the runtime around it is counted too"
    assert estimate.cycles > estimate.pipeline_cycles
    assert sum(x.dram_bytes for x in estimate.layers) < 100_000, "its weights fit the cache"


@pytest.mark.slow
def test_counts_repeat(tmp_path, settings):
    made = bundle(tmp_path, settings)
    one, two = (estimate_bundle(made, settings=settings) for _ in range(2))
    assert [x.instructions for x in one.layers] == [x.instructions for x in two.layers]
    assert one.instructions == pytest.approx(two.instructions, rel=0.02)


def test_memory_that_must_come_from_dram_does(tmp_path, settings):
    """Weights that no cache holds are read anew at each inference."""

    class Large(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(2048, 1024)

        def forward(self, x):
            return self.fc(x)

    compiled = compile_module(
        lower(export(Large(), torch.randn(1, 2048))), load_target_or_fail("rpi4"), settings=settings
    )
    made = write_bundle(compiled, tmp_path / "large.edgectl")
    (layer,) = [x for x in estimate_bundle(made, settings=settings).layers if x.call.macs]
    weights = 4 * 2048 * 1024
    assert weights < layer.dram_bytes < 1.2 * weights, "8 MB of weights, 1 MB of cache"


def test_static_costs_are_known_without_emulation(tmp_path, settings):
    cost = static_cost(bundle(tmp_path, settings))
    assert cost.macs == 49 * 64 * (64 + 64 + 256)
    assert cost.integer_macs == 0
    assert cost.constant_bytes >= 4 * sum(p.numel() for p in Net().parameters())
    assert cost.boundary_bytes == 4 * 49 * 64 + 4 * 49 * 256
    assert {f.target: f.fits for f in cost.fits}["rpizero2w"]


def test_a_model_too_large_for_a_small_board_says_so(tmp_path, settings, monkeypatch):
    monkeypatch.setattr("edgectl.estimation.fits.SYSTEM_BYTES", 470_000_000)
    fits = {f.target: f.fits for f in static_cost(bundle(tmp_path, settings)).fits}
    assert fits == {"rpizero2w": False, "rpi3": True, "rpi4": True, "rpi5": True}


def test_missing_programs_are_named_with_their_packages(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(estimation_tools.ConfigurationError) as error:
        estimation_tools.find_tools(tmp_path)
    assert "apt-get install qemu-user llvm-19" in error.value.next_step


def test_an_emulator_without_plugins_is_refused(tmp_path, monkeypatch):
    for name in ("qemu-aarch64", "llvm-mc-19", "llvm-mca-19"):
        (tmp_path / name).write_text("#!/bin/sh\necho usage\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(estimation_tools.ConfigurationError, match="without plugins"):
        estimation_tools.find_tools(tmp_path)


def test_the_command_prints_a_document_that_says_that_it_is_modelled(
    tmp_path, settings, virtual_pi
):
    made = bundle(tmp_path, settings)
    document = virtual_pi("estimate", made.path, "--json").expect(0).document
    assert document["modelled"] is True
    assert document["threads"] == 1
    assert {"first", "second", "wide"} <= {layer["module"] for layer in document["layers"]}
    assert sum(layer["share"] for layer in document["layers"]) < 1


def test_an_emulated_profile_does_not_calibrate(tmp_path, settings, virtual_pi):
    made = bundle(tmp_path, settings)
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({"layers": [], "target": "rpi4", "threads": 1, "emulated": True}))
    ended = virtual_pi("estimate", made.path, "--calibrate", profile, "--json")
    assert "virtual board" in ended.expect(2).document["error"]["message"]
