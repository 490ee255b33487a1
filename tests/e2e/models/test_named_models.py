"""Well-known architectures on the virtual Pi: compiled for the Raspberry Pi 4, equal to eager.

Those with state (the decoder with its cache, the streaming voice detector) answer several
successive calls. The large ones take minutes under emulation and are slow.
"""

from __future__ import annotations

import pytest

from edgectl.bundle import write_bundle
from edgectl.codegen import compile_module, load_target_or_fail
from edgectl.lowering import lower
from edgectl.settings import load_settings
from support.exported import export
from support.golden_on_device import DeviceCheck, check_on_device
from support.models import MODELS

pytestmark = pytest.mark.device

SMALL = ("ds_cnn", "encoder_layer", "gpt_block", "voice_detector")
LARGE = tuple(sorted(set(MODELS) - set(SMALL)))
STATEFUL = {"gpt_block", "voice_detector"}


def _check(virtual_pi, folder, names) -> dict[str, DeviceCheck]:
    settings = load_settings({"EDGECTL_HOME": str(virtual_pi.home)})
    target = load_target_or_fail("rpi4")
    bundles = {}
    for name in names:
        module, inputs = MODELS[name]()
        compiled = compile_module(lower(export(module, *inputs)), target, settings=settings)
        bundles[name] = write_bundle(compiled, folder / f"{name}.edgectl").path
    return check_on_device(virtual_pi.home, bundles)


def _judge(name: str, result: DeviceCheck) -> None:
    assert result.error is None, f"{name}: {result.error}"
    assert result.comparisons
    assert result.passed, (name, result.comparisons)
    assert result.worst <= 1e-4, (name, result.worst)
    if name in STATEFUL:
        assert len({c["call"] for c in result.comparisons}) >= 3


def test_small_models_answer_as_eager_does(virtual_pi, tmp_path):
    for name, result in _check(virtual_pi, tmp_path, SMALL).items():
        _judge(name, result)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_large_model_answers_as_eager_does(name, virtual_pi, tmp_path):
    _judge(name, _check(virtual_pi, tmp_path, [name])[name])
