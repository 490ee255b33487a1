"""Models after public bug reports: on aarch64 they answer what eager PyTorch answers.

All are lowered, compiled for the Raspberry Pi 4 and bundled as ``edgectl compile`` would; then the
virtual Pi makes the golden calls (three in a row for a model with state).
"""

from __future__ import annotations

import pytest

from edgectl.bundle import write_bundle
from edgectl.codegen import compile_module, load_target_or_fail
from edgectl.errors import EdgectlError, UnsupportedModelError
from edgectl.lowering import lower
from edgectl.settings import load_settings
from support.cases import FILE, bug_models
from support.exported import export
from support.golden_on_device import DeviceCheck, check_on_device

pytestmark = pytest.mark.device

MODELS = bug_models()
# Reports that are about a bound of their own: what max|error| / max|y| may be, and why.
BOUNDS: dict[str, float] = {}
REFUSED = sorted(MODELS.EXPORT_FAILS)
RUN = sorted(set(MODELS.CASES) - MODELS.EXPORT_FAILS)


@pytest.fixture(scope="module")
def checked(virtual_pi, tmp_path_factory) -> dict[str, DeviceCheck]:
    """Every case on the device, or why it did not come so far."""
    folder = tmp_path_factory.mktemp("cases")
    settings = load_settings({"EDGECTL_HOME": str(virtual_pi.home)})
    target = load_target_or_fail("rpi4")
    bundles, refused = {}, {}
    for name in RUN:
        module, inputs = MODELS.CASES[name][0]()
        try:
            model = export(module, *inputs, dynamic=MODELS.DYNAMIC.get(name))
            compiled = compile_module(lower(model), target, settings=settings)
            bundles[name] = write_bundle(compiled, folder / f"{name}.edgectl").path
        except EdgectlError as error:
            refused[name] = DeviceCheck(error=f"{type(error).__name__}: {error}")
    return {**check_on_device(virtual_pi.home, bundles), **refused}


def test_the_cases_are_all_read():
    if not FILE.exists():
        pytest.skip("the acceptance cases are not beside this checkout: nothing was judged")
    assert len(MODELS.CASES) >= 55


@pytest.mark.parametrize("name", RUN)
def test_the_device_answers_as_eager_does(checked, name):
    result = checked[name]
    assert result.error is None, f"{result.error} ({MODELS.CASES[name][1]})"
    assert result.comparisons
    assert result.passed, result.comparisons
    assert result.worst <= BOUNDS.get(name, 1e-4)
    if name in MODELS.STATEFUL:
        assert len({c["call"] for c in result.comparisons}) >= 3


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exported_is_refused_with_a_reason(name):
    module, inputs = MODELS.CASES[name][0]()
    with pytest.raises(UnsupportedModelError) as refusal:
        export(module, *inputs)
    assert refusal.value.next_step
