"""One axis after the other: what is best so far is kept while the next axis is tried.

Choices that make the same code are tried once. What does not compile, or computes something else
than PyTorch, is noted and left behind. At the end the best candidate meets the default once more,
and only if it wins does it become the answer: the result is never worse than what one had.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from edgectl.errors import CompileError, DeviceError, EdgectlError, OutputMismatchError, UsageError
from edgectl.records import Bundle
from edgectl.tuning.evaluators import Evaluator
from edgectl.tuning.journal import Entry, Journal
from edgectl.tuning.space import Candidate, axes_for
from edgectl.tuning.workshop import Workshop

__all__ = ["Trial", "TuneResult", "tune"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A candidate and what came of it; ``cost`` is ``None`` if it does not work (``reason``).

    ``remembered`` says that the cost is from the journal or from a candidate with the same code.
    """

    candidate: Candidate
    cost: float | None
    reason: str = ""
    remembered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """The answer: ``bundle`` is that of ``best``, which is the default unless another one won.

    ``default_cost`` and ``best_cost`` are from their last meeting, in the evaluator's unit.
    """

    best: Candidate
    bundle: Bundle
    best_cost: float
    default_cost: float
    unit: str
    trials: tuple[Trial, ...]


def tune(
    workshop: Workshop,
    evaluator: Evaluator,
    journal: Journal,
    *,
    precisions: tuple[str, ...] = (),
    threads: tuple[int, ...] = (),
    budget: int | None = None,
    on_trial: Callable[[Trial], None] | None = None,
) -> TuneResult:
    """Searches the choices for a model.

    Args:
        workshop: makes the bundles.
        evaluator: puts a number on them.
        journal: what was tried before, and where new outcomes go.
        precisions: recipes to try beside the default's.
        threads: numbers of threads to try.
        budget: how many new evaluations at most; the default is always evaluated.
        on_trial: told about each trial as it ends.

    Raises:
        OutputMismatchError: the default itself is wrong.
        EdgectlError: as the default's own compilation or run would.
    """
    search = _Search(workshop, evaluator, journal, budget, on_trial)
    default = workshop.default
    start = search.trial(default)
    if start.cost is None:
        raise search.failures.get(default) or UsageError(
            f"The default does not work: {start.reason}",
            cause="It failed when it was tried before; the journal remembers.",
            next_step="Find out why with `edgectl deploy`, or begin again with --fresh.",
        )
    best = start
    for number in range(len(axes_for(default, workshop.target))):
        axis = axes_for(best.candidate, workshop.target, precisions=precisions, threads=threads)
        for candidate in axis[number]:
            found = search.trial(candidate)
            if found.cost is not None and best.cost is not None and found.cost < best.cost:
                best = found
    winner, cost, default_cost = default, start.cost, start.cost
    if best.candidate != default:
        mine, (theirs, _) = workshop.make(default), workshop.make(best.candidate)
        default_cost, challenge = evaluator.duel((mine[0], default), (theirs, best.candidate))
        winner, cost = default, default_cost
        if challenge < default_cost:
            winner, cost = best.candidate, challenge
    return TuneResult(
        best=winner,
        bundle=workshop.make(winner, numbered=True)[0],
        best_cost=cost,
        default_cost=default_cost,
        unit=evaluator.unit,
        trials=tuple(search.trials),
    )


class _Search:
    def __init__(
        self,
        workshop: Workshop,
        evaluator: Evaluator,
        journal: Journal,
        budget: int | None,
        on_trial: Callable[[Trial], None] | None,
    ):
        self.workshop = workshop
        self.evaluator = evaluator
        self.journal = journal
        self.left = budget
        self.on_trial = on_trial
        self.trials: list[Trial] = []
        self.failures: dict[Candidate, EdgectlError] = {}
        self.costs: dict[tuple[str, int | None], float] = {}

    def trial(self, candidate: Candidate) -> Trial:
        """Tries a candidate, or remembers what came of it."""
        done = self._trial(candidate)
        self.trials.append(done)
        if self.on_trial is not None:
            self.on_trial(done)
        return done

    def _trial(self, candidate: Candidate) -> Trial:
        key = self._key(candidate)
        known = self.journal.get(key)
        if known is not None:
            return Trial(candidate=candidate, cost=known.cost, reason=known.reason, remembered=True)
        if self.left is not None and self.left <= 0 and self.trials:
            return Trial(candidate=candidate, cost=None, reason="not tried: --budget is used up")
        cost, reason, remembered = None, "", False
        try:
            bundle, code = self.workshop.make(candidate)
            place = (code, candidate.threads)
            remembered = place in self.costs
            if not remembered:
                self.left = None if self.left is None else self.left - 1
                self.costs[place] = self.evaluator.cost(bundle, candidate)
            cost = self.costs[place]
            reason = "the same code as another choice" if remembered else ""
        except (CompileError, OutputMismatchError) as error:
            self.failures[candidate] = error
            reason = error.message
        except DeviceError as error:
            # Perhaps only this choice needs more than the device has; but it is not remembered.
            self.failures[candidate] = error
            return Trial(candidate=candidate, cost=None, reason=error.message)
        self.journal.add(Entry(key=key, label=candidate.label, cost=cost, reason=reason))
        return Trial(candidate=candidate, cost=cost, reason=reason, remembered=remembered)

    def _key(self, candidate: Candidate) -> str:
        program = self.workshop.key(replace(candidate, threads=None))
        text = f"{program} {self.evaluator.name} {candidate.threads}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]
