"""The load that the runner makes, and what it sees of the board meanwhile."""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from edgectl_runner.contract import LoadPlan
from edgectl_runner.failures import RunnerError
from edgectl_runner.looking import busy_seconds, process_seconds
from edgectl_runner.scenarios import arrivals_ns, check_plan, settled
from edgectl_runner.tracing import Tracer


def test_arrivals_are_a_poisson_process_of_the_rate_that_was_asked_for() -> None:
    moments = np.array(list(itertools.islice(arrivals_ns(50.0, 7), 20_000))) / 1e9
    gaps = np.diff(moments, prepend=0.0)
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.03)
    assert stats.kstest(gaps, "expon", args=(0, 1 / 50)).pvalue > 0.01
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.03


def test_a_seed_gives_the_same_arrivals_again_and_another_gives_others() -> None:
    first, again, other = (list(itertools.islice(arrivals_ns(5.0, seed), 10)) for seed in (1, 1, 2))
    assert first == again != other


def test_a_latency_has_settled_when_three_windows_agree() -> None:
    assert not settled(deque([30.0] * 8))
    assert settled(deque([90.0, 60.0, *[30.0, 31.0, 29.0] * 3]))
    assert not settled(deque([50.0, 50.0, 50.0, 40.0, 40.0, 40.0, 30.0, 30.0, 30.0]))
    assert settled(deque([30.0, 30.0, 90.0] * 3)), "one spike in a window moves no median"


@pytest.mark.parametrize(
    "plan",
    [
        LoadPlan(min_queries=0),
        LoadPlan(batch=0),
        LoadPlan(scenario="server"),
        LoadPlan(scenario="server", target_qps=-1.0),
        LoadPlan(max_seconds=0.0),
        LoadPlan(spin_us=-1),
        LoadPlan(trace_interval_s=0.0),
    ],
)
def test_a_load_that_makes_no_sense_is_refused_as_usage(plan: LoadPlan) -> None:
    with pytest.raises(RunnerError) as caught:
        check_plan(plan)
    assert caught.value.code == 2


def _board(root: Path, busy_ticks: int) -> None:
    for name, text in {
        "proc/stat": f"cpu  {busy_ticks} 0 0 1000 5 0 0 0 0 0\ncpu0 1 1 1 1\n",
        "proc/meminfo": "MemAvailable: 1000 kB\n",
        "sys/class/thermal/thermal_zone0/temp": "61234\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1500000\n",
        "sys/devices/platform/soc/soc:firmware/get_throttled": "50005\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name("new")
        new.write_text(text)
        new.replace(path)  # whoever looks meanwhile sees the old or the new


def test_a_trace_tells_heat_clock_throttling_and_the_work_of_others(tmp_path: Path) -> None:
    _board(tmp_path, 100)
    with Tracer(interval_s=0.05, root=str(tmp_path)) as tracer:
        tracer.start_clock()
        time.sleep(0.5)  # several looks: the first to tell the work of others needs two
        _board(tmp_path, 100_000)
    last = tracer.points[-1]
    assert last.temperature_celsius == pytest.approx(61.234)
    assert last.cpu_frequency_mhz == (1500.0,)
    assert last.throttle_flags == 0x50005
    assert max(p.other_load or 0.0 for p in tracer.points) > 1.0
    assert last.time_s > 0


def test_own_work_is_not_that_of_others() -> None:
    before = process_seconds(os.getpid())
    while time.process_time() < 0.5:
        pass
    assert before is not None
    assert (process_seconds(os.getpid()) or 0.0) >= max(before, 0.4)
    assert process_seconds(2**22 + 1) is None


def test_a_board_that_tells_nothing_gives_points_without_figures(tmp_path: Path) -> None:
    assert busy_seconds(str(tmp_path)) is None
    with Tracer(interval_s=10.0, root=str(tmp_path)) as tracer:
        pass
    for point in tracer.points:
        assert point.temperature_celsius is None
        assert point.other_load is None
        assert point.cpu_frequency_mhz == ()
