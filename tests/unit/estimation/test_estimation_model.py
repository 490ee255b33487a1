"""The models behind an estimate, on numbers whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from edgectl.errors import ConfigurationError, EdgectlError, UsageError
from edgectl.estimation.calibration import (
    calibrate,
    load_calibration,
    recalculated,
    save_calibration,
)
from edgectl.estimation.counting import MemoryTraffic, parse_counts
from edgectl.estimation.estimate import Estimate, LayerEstimate, calls_in_order
from edgectl.estimation.fits import StaticCost
from edgectl.estimation.libraries import find_libraries
from edgectl.estimation.memory_model import CostTerms, Weights, cycles_of, dram_bytes, fit, terms_of
from edgectl.settings import load_settings
from edgectl_toolchains import load_target
from support.dispatch_calls import call

COUNTS = """\
step 0 20 4 6 2 2
step 1 0 0 0 0 0
block d503201fd65f03c0 4
block d503201f 0 0:10 1:2
block d503201f 2 0:2
end
"""
WEIGHTS = Weights(pipeline=1.25, exposed=0.4, dram=0.6, dispatch=1500.0)


def layers(count=40):
    random = np.random.default_rng(1)
    return [
        CostTerms(pipeline=p, caches=c, dram=d) for p, c, d in random.uniform(0, 1e6, (count, 3))
    ]


def estimate(terms, target="rpi4"):
    rows = tuple(
        LayerEstimate(
            call=call(f"dispatch_{i}"),
            instructions=1.0,
            pipeline_cycles=t.pipeline,
            cycles=t.pipeline,
            dram_bytes=0,
            terms=t,
        )
        for i, t in enumerate(terms)
    )
    static = StaticCost(
        macs=0, integer_macs=0, constant_bytes=0, transient_bytes=0, boundary_bytes=0,
        module_bytes=0, needed_bytes=0, fits=(),
    )  # fmt: skip
    return Estimate(
        target=target, static=static, instructions=1.0, pipeline_cycles=1.0, cycles=1.0,
        milliseconds=1.0, runtime_cycles=7000.0, layers=rows, weights=WEIGHTS, calibrated=None,
    )  # fmt: skip


def profile(terms, **changes):
    hertz = load_target("rpi4").clock_mhz * 1e6
    rows = [
        {"symbol": f"dispatch_{i}", "mean_ms": cycles_of(t, WEIGHTS) / hertz * 1e3}
        for i, t in enumerate(terms)
    ]
    return {"target": "rpi4", "threads": 1, "emulated": False, "layers": rows, **changes}


def test_a_fit_finds_the_weights_that_made_the_times():
    terms = layers()
    found = fit(terms, [cycles_of(t, WEIGHTS) for t in terms])
    assert found.pipeline == pytest.approx(WEIGHTS.pipeline)
    assert found.exposed == pytest.approx(WEIGHTS.exposed)
    assert found.dram == pytest.approx(WEIGHTS.dram)
    assert found.dispatch == pytest.approx(WEIGHTS.dispatch)


def test_a_fit_has_no_negative_weight():
    """A term that would want one is left out, and the others are fitted without it."""
    terms = layers()
    found = fit(terms, [2 * t.pipeline - 0.5 * t.dram + 6e5 for t in terms])
    assert found.dram == 0
    assert min(found.pipeline, found.exposed, found.dispatch) >= 0
    assert found.pipeline == pytest.approx(2, rel=0.3)


def test_calibration_brings_the_estimate_to_the_board(tmp_path):
    terms = layers()
    before = estimate(terms)
    result = calibrate(before, profile(terms), source="kitchen")
    after = recalculated(before, result)
    assert result.mean_error < 1e-6 < result.mean_error_before
    expected = sum(cycles_of(t, WEIGHTS) for t in terms) + before.runtime_cycles
    assert after.cycles == pytest.approx(expected)
    assert after.calibrated == "kitchen"
    settings = load_settings({"EDGECTL_HOME": str(tmp_path)})
    assert load_calibration("rpi4", settings) is None
    save_calibration(result, settings)
    assert load_calibration("rpi4", settings) == result


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"emulated": True}, "virtual board"),
        ({"target": "rpi5"}, "it is of rpi5"),
        ({"threads": 4}, "4 threads"),
        ({"layers": [{"symbol": "other", "mean_ms": 1.0}]}, "another bundle"),
        ({"layers": None}, "not what `edgectl profile --json` prints"),
    ],
)
def test_what_cannot_calibrate_is_refused(changes, reason):
    terms = layers()
    with pytest.raises(UsageError, match=reason):
        calibrate(estimate(terms), profile(terms, **changes), source="profile.json")


def test_a_damaged_calibration_is_named(tmp_path):
    settings = load_settings({"EDGECTL_HOME": str(tmp_path)})
    file = settings.state_dir / "calibration/rpi4.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    with pytest.raises(ConfigurationError, match="cannot be read") as error:
        load_calibration("rpi4", settings)
    assert "rpi4.json" in error.value.message


def test_misses_become_waiting_and_bytes():
    traffic = MemoryTraffic(loads=1000, stores=10, misses=(100, 30), writebacks=20)
    assert dram_bytes(traffic) == 50 * 64
    terms = terms_of(5e4, traffic, load_target("rpi4"))
    assert terms.pipeline == 5e4
    assert terms.caches == 70 * 20, "70 lines from the second cache, 20 cycles away"
    assert terms.dram == pytest.approx(50 * 64 / 4e9 * 1.5e9)


def test_counts_are_read_by_dispatch():
    counts = parse_counts(COUNTS, ["conv", "add"], inferences=2)
    assert counts.blocks["d503201f"] == {-1: 1, 0: 6, 1: 1}
    assert counts.instructions == (2 * 4 + 12 + 4) / 2
    assert counts.traffic[0] == MemoryTraffic(loads=10, stores=2, misses=(3, 1), writebacks=1)


@pytest.mark.parametrize(
    "text", ["", "step 0 1 1 1\n", "wrong a function was entered that the plan does not have\nend"]
)
def test_a_count_that_was_cut_short_or_went_wrong_is_refused(text):
    with pytest.raises(EdgectlError, match="was not counted"):
        parse_counts(text, ["conv"], inferences=2)


def test_calls_behind_dispatches_and_loops():
    calls = (call("a", "one"), call("b", "two"), call("a", "three"), call("c", function=""))
    names = [c.module for c in calls_in_order(calls, ("a", "b", "a", "a", "a", "d"))]
    assert names == ["one", "two", "three", "one", "three", ""]


def test_code_that_is_not_there_is_named():
    with pytest.raises(EdgectlError, match="main_dispatch_0"):
        find_libraries(b"\x7fELF\x02\x01\x01" + bytes(100), frozenset({"main_dispatch_0"}))


def test_caches_of_the_boards_hold_what_they_should():
    for name in ("rpi3", "rpi4", "rpi5", "rpizero2w"):
        target = load_target(name)
        sizes = [target.l1d_kib, target.l2_kib] + ([target.l3_kib] if target.l3_kib else [])
        assert [c.ways * c.sets * 64 for c in target.caches] == [s * 1024 for s in sizes]
