"""The search over compile choices: never worse, resumable, honest about what failed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from edgectl.errors import CompileError, DeviceError, OutputMismatchError, UsageError
from edgectl.tuning import Candidate, Journal, axes_for, tune
from edgectl_toolchains import load_target

DEFAULT = Candidate()


class Bench:
    """A workshop and an evaluator in one: costs by label, failures by label."""

    unit = "ms"
    name = "bench"
    default = DEFAULT

    def __init__(self, costs=None, failures=None, target="rpi4", duel=None, same=()):
        self.target = load_target(target)
        self.costs = {"default": 10.0, **(costs or {})}
        self.failures = failures or {}
        self.asked = []
        self.meeting = duel
        self.same = same

    def key(self, candidate):
        return candidate.label

    def make(self, candidate, *, numbered=False):
        if isinstance(self.failures.get(candidate.label), CompileError):
            raise self.failures[candidate.label]
        code = "same" if candidate.label in self.same else candidate.label
        return SimpleNamespace(label=candidate.label), code

    def cost(self, bundle, candidate):
        self.asked.append(candidate.label)
        if candidate.label in self.failures:
            raise self.failures[candidate.label]
        return self.costs.get(candidate.label, 12.0)

    def duel(self, one, other):
        if self.meeting is not None:
            return self.meeting
        return self.cost(*one), self.cost(*other)


def run(bench, tmp_path, **options):
    return tune(bench, bench, Journal(tmp_path / "journal"), **options)


def test_the_best_of_each_axis_is_kept_for_the_next(tmp_path):
    costs = {
        "no kernels": 8.0,
        "no kernels, O2": 7.0,
        "no kernels, O2, tiles of 32": 6.0,
        "O2": 1.0,
    }
    result = run(Bench(costs), tmp_path)
    assert result.best.label == "no kernels, O2, tiles of 32"
    assert (result.best_cost, result.default_cost) == (6.0, 10.0)
    assert result.bundle.label == result.best.label


def test_the_default_wins_when_nothing_is_better(tmp_path):
    result = run(Bench(), tmp_path)
    assert result.best == DEFAULT
    assert result.bundle.label == "default"
    assert result.best_cost == result.default_cost == 10.0


def test_a_lucky_measurement_does_not_win_the_last_meeting(tmp_path):
    bench = Bench({"no kernels": 9.0}, duel=(10.0, 10.5))
    result = run(bench, tmp_path)
    assert result.best == DEFAULT, "measured again, side by side, the default was quicker"
    assert result.best_cost == 10.0


@pytest.mark.parametrize(
    "error", [CompileError("no code"), OutputMismatchError("wrong"), DeviceError("out of memory")]
)
def test_what_fails_is_listed_with_its_reason_and_never_chosen(tmp_path, error):
    bench = Bench({"O2": 0.1}, failures={"O2": error})
    result = run(bench, tmp_path)
    (trial,) = [t for t in result.trials if t.candidate.label == "O2"]
    assert trial.cost is None
    assert trial.reason == error.message
    assert result.best == DEFAULT


def test_a_default_that_is_wrong_is_an_error(tmp_path):
    bench = Bench(failures={"default": OutputMismatchError("wrong")})
    with pytest.raises(OutputMismatchError):
        run(bench, tmp_path)
    with pytest.raises(UsageError, match="wrong"):
        run(bench, tmp_path)


def test_a_second_search_evaluates_nothing_again(tmp_path):
    first = run(Bench({"no kernels": 8.0}, failures={"O2": CompileError("no")}), tmp_path)
    bench = Bench({"no kernels": 8.0}, duel=(10.0, 8.0))
    second = run(bench, tmp_path)
    assert bench.asked == []
    assert second.best == first.best
    assert all(t.remembered for t in second.trials)


def test_an_interrupted_search_goes_on(tmp_path):
    class Interrupted(Bench):
        def cost(self, bundle, candidate):
            if candidate.label == "no loop unrolling":
                raise KeyboardInterrupt
            return super().cost(bundle, candidate)

    with pytest.raises(KeyboardInterrupt):
        run(Interrupted(), tmp_path)
    bench = Bench()
    run(bench, tmp_path)
    assert "default" not in bench.asked
    assert "no kernels" not in bench.asked
    assert "no loop unrolling" in bench.asked


def test_a_line_that_was_cut_short_is_tried_again(tmp_path):
    run(Bench(), tmp_path)
    file = tmp_path / "journal"
    text = file.read_text()
    file.write_text(text[:-20])
    last = run(Bench(), tmp_path).trials[-1].candidate.label
    bench = Bench()
    run(bench, tmp_path)
    assert bench.asked == [], f"{last} was written whole after the torn line"


def test_failures_of_the_device_are_not_remembered(tmp_path):
    run(Bench(failures={"O2": DeviceError("unplugged")}), tmp_path)
    bench = Bench({"O2": 5.0})
    assert run(bench, tmp_path).best.label == "O2"


def test_the_same_code_is_evaluated_once(tmp_path):
    bench = Bench(same=("default", "O2", "winograd"))
    result = run(bench, tmp_path)
    assert not {"O2", "winograd"} & set(bench.asked)
    costs = {t.candidate.label: t.cost for t in result.trials}
    assert costs["O2"] == costs["winograd"] == costs["default"]


def test_a_budget_limits_evaluations_and_says_so(tmp_path):
    bench = Bench({"no kernels": 8.0}, duel=(10.0, 8.0))
    result = run(bench, tmp_path, budget=2)
    assert bench.asked == ["default", "no kernels"]
    assert result.best.label == "no kernels"
    assert all("--budget" in t.reason for t in result.trials[2:])


def test_threads_and_precisions_are_tried_when_asked(tmp_path):
    costs = {"fp16": 5.0, "fp16, 2 threads": 3.0}
    result = run(Bench(costs, target="rpi5"), tmp_path, precisions=("fp16",), threads=(1, 2, 4))
    assert result.best == Candidate(precision="fp16", threads=2)


def test_half_precision_is_not_tried_where_the_core_has_none():
    axes = axes_for(DEFAULT, load_target("rpi4"), precisions=("fp16", "int8"))
    assert [c.precision for c in axes[0]] == ["int8"]
