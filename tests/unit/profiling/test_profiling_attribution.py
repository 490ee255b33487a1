"""From events to milliseconds by layer."""

from __future__ import annotations

import pytest

from edgectl.errors import DeviceError
from edgectl.profiling import attribute, roofline
from edgectl.profiling.attribute import exclusive_ns
from edgectl.profiling.trace import parse_events
from edgectl_toolchains import load_target
from support.dispatch_calls import call, event


def test_calls_that_share_a_dispatch_are_told_apart_by_order():
    calls = [call("conv", "first"), call("add", "sum"), call("conv", "second")]
    events = [
        event("conv", 0, 1), event("add", 1, 2), event("conv", 2, 5),
        event("conv", 10, 13), event("add", 13, 14), event("conv", 14, 19),
    ]  # fmt: skip
    times = attribute(events, calls, inferences=2)
    assert [(t.call.module, t.mean_ms) for t in times] == [
        ("first", pytest.approx(2)),
        ("sum", pytest.approx(1)),
        ("second", pytest.approx(4)),
    ]
    assert (times[2].min_ms, times[2].max_ms) == (pytest.approx(3), pytest.approx(5))


def test_the_first_inferences_are_to_warm_up():
    events = [event("conv", 0, 9), event("conv", 10, 11), event("conv", 12, 15)]
    (time,) = attribute(events, [call("conv")], inferences=2)
    assert (time.mean_ms, time.max_ms) == (pytest.approx(2), pytest.approx(3))


def test_what_runs_at_loading_is_not_part_of_an_inference():
    calls = [call("pack", function=""), call("conv", "layer")]
    events = [event("pack", 0, 50), event("conv", 60, 61)]
    (time,) = attribute(events, calls, inferences=1)
    assert (time.call.module, time.mean_ms) == ("layer", pytest.approx(1))


def test_a_dispatch_used_at_loading_and_later():
    calls = [call("pack", function=""), call("pack", "layer")]
    events = [event("pack", 0, 50), event("pack", 60, 62)]
    (time,) = attribute(events, calls, inferences=1)
    assert time.mean_ms == pytest.approx(2)


@pytest.mark.parametrize(
    "events",
    [
        [event("conv", 0, 1), event("other", 1, 2)],
        [event("conv", 0, 1), event("conv", 1, 2), event("add", 2, 3)],
        [event("conv", 0, 1), event("conv", 1, 2)],
        [event("conv", 0, 1), event("add", 1, 2)],
    ],
    ids=["a stranger", "one too many", "one missing", "too few"],
)
def test_a_profile_of_another_program_is_refused(events):
    with pytest.raises(DeviceError, match="does not fit the bundle"):
        attribute(events, [call("conv"), call("add")], inferences=2)


def test_a_bundle_without_a_table_still_gets_times():
    events = [event("a", 0, 1), event("b", 1, 3), event("a", 4, 5), event("b", 5, 7)]
    times = attribute(events, [], inferences=2)
    assert [(t.call.symbol, t.mean_ms) for t in times] == [("a", 1.0), ("b", 2.0)]


def test_dispatches_at_the_same_time_share_it():
    together = [event("a", 0, 4), event("b", 2, 6), event("c", 8, 9)]
    assert [ns / 1e6 for ns in exclusive_ns(together)] == pytest.approx([3, 3, 1])
    assert sum(exclusive_ns(together)) / 1e6 == pytest.approx(7), "6 ms of work, 1 ms of work"


def test_what_the_tool_prints_is_read():
    line = (
        '{"type":"host_dispatch_event","key":"main_dispatch_0","workgroup_count":[4,2,1],'
        '"start_host_time_ns":20,"end_host_time_ns":30,"valid":true}'
    )
    earlier = line.replace('"start_host_time_ns":20', '"start_host_time_ns":5')
    other = '{"type":"session","key":1}'
    events = parse_events(f"{other}\n{line}\n{earlier}\n")
    assert [(e.symbol, e.start_ns, e.workgroups) for e in events] == [
        ("main_dispatch_0", 5, 8),
        ("main_dispatch_0", 20, 8),
    ]


@pytest.mark.parametrize("text", ["", "not json", '{"type":"host_dispatch_event"}'])
def test_what_is_no_profile_is_refused(text):
    with pytest.raises(DeviceError, match="cannot be read"):
        parse_events(text)


def test_the_limit_of_arithmetic():
    # 4 multiply-accumulates a cycle at 1500 MHz: 6 G a second on one core, 24 G on four.
    layer = call("conv", macs=6_000_000)
    one = roofline(layer, load_target("rpi4"), precision="fp32", threads=1)
    four = roofline(layer, load_target("rpi4"), precision="fp32", threads=4)
    assert (one.limit_ms, one.bound) == (pytest.approx(1.0), "compute")
    assert four.limit_ms == pytest.approx(0.25)


def test_the_limit_of_memory():
    # 8 MB do not fit a cache of 1 MB; at 4 GB/s they take 2 ms.
    layer = call("fc", macs=2_000_000, read_bytes=8_000_000)
    limit = roofline(layer, load_target("rpi4"), precision="fp32", threads=4)
    assert (limit.limit_ms, limit.bound) == (pytest.approx(2.0), "memory")


def test_integers_have_another_peak():
    layer = call("conv", macs=6_000_000, integer=True)
    limit = roofline(layer, load_target("rpi5"), precision="int8", threads=1)
    assert limit.limit_ms == pytest.approx(6_000_000 / (32 * 2.4e9) * 1e3)
