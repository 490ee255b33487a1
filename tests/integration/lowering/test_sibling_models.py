"""What breaks one model breaks its siblings: around each kind of report, equal or refused by name.

The models are in ``support/sibling_models.py``. All run on this computer; a part of them that
has one of each kind runs always, the rest is slow.
"""

from __future__ import annotations

import pytest

from edgectl.errors import UnsupportedModelError
from edgectl.lowering import lower
from support.exported import export
from support.host_run import worst_error
from support.sibling_models import DYNAMIC, SIBLINGS

TOLERANCE = 1e-4  # of the largest expected value: float32, sums in another order

# No way down in this torch-mlir or no such arithmetic in IREE: refused, and by what name.
# The list may only shrink.
REFUSED = {
    "B021 place in a state": "self.cache[:, self.n] = x",
    "B023 transposed and diagonal": "vtensor.literal",
    "B025 mask at run time": "depends on data",
    "B026 bag mean": "embedding_bag",
    "B035 cummax": "cummax",
    "B041 searchsorted": "searchsorted",
    "B052 complex rotary": "complex",
    "B052 spectrum": "_fft_r2c",
    "B052 stft": "_fft_r2c",
    "B059 digamma": "digamma",
    "B059 erfinv": "erfinv",
    "B059 float_power": "float64",
    "B059 i0": "i0",
    "B059 lgamma": "lgamma",
    "B059 nextafter": "nextafter",
    "B060 float64 input": "float64",
    "B060 float64 model": "float64",
}
# One or two of every kind that was wrong or refused once, with the dialect that it ends in.
ALWAYS = (
    "B001 adaptive max indices",
    "B002 divisor, pad, ceil",
    "B014 antialias",
    "B021 place in a state",
    "B021 scatter",
    "B021 statistics that go on",
    "B022 two inputs",
    "B025 constant mask",
    "B025 mask at run time",
    "B023 assignment by two indices",
    "B035 cummax",
    "B041 float to int64",
    "B041 large int64",
    "B041 large int64 to float",
    "B041 wrapping int8",
    "B052 complex rotary",
    "B058 byte arithmetic wraps",
    "B058 bytes passed through",
    "B058 division",
    "B059 logaddexp",
    "B059 negative base",
    "B060 float64 model",
)
# Wrong, and known to be: a max pool whose window holds nothing but minus infinity answers
# float32's lowest number, because that is where IREE begins to look for the maximum.
KNOWN_WRONG = ("B004 minus infinity",)


def _marked(name):
    marks = [] if name in ALWAYS else [pytest.mark.slow]
    if name in KNOWN_WRONG:
        marks.append(pytest.mark.xfail(strict=True, reason="lowest number for minus infinity"))
    return pytest.param(name, marks=marks)


CASES = [_marked(name) for name in SIBLINGS]


@pytest.mark.parametrize("name", CASES)
def test_a_sibling_is_equal_to_eager_or_refused_by_name(name):
    module, inputs = SIBLINGS[name]
    if name in REFUSED:
        with pytest.raises(UnsupportedModelError) as refusal:
            lower(export(module, *inputs, dynamic=DYNAMIC.get(name)))
        assert REFUSED[name] in str(refusal.value)
        assert refusal.value.next_step
        return
    lowered = lower(export(module, *inputs, dynamic=DYNAMIC.get(name)))
    assert worst_error(lowered) <= TOLERANCE
