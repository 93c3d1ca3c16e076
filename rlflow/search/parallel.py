"""One search in several processes: each draws other random numbers, or follows other first choices, and the best of all
is the result.

A strategy that draws none may say that it ``shares``: all workers go down the same way first, then each follows every
n-th of the choices that are open there, and from a better graph of its own on it searches alone.

The processes know nothing of each other, so the result depends on the seed and on the number of workers, and not on
which of them is faster. A budget in counts is shared out; a budget in seconds is everyone's, because they run at the
same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.budget import Budget, StopReason
from rlflow.search.interrupt import InterruptGuard, StopToken
from rlflow.search.problem import Problem
from rlflow.search.result import Counts, CurvePoint, Result, TraceStep
from rlflow.search.strategies import Strategy, describe, make

#: Makes the problem anew in each worker from its budget and seed; it is pickled, so it is a module's function or a
#: ``functools.partial`` of one.
MakeProblem = Callable[[Budget, int], Problem]


_ALL = StopReason.EXHAUSTED


@dataclass(frozen=True)
class _Outcome:
    """What a worker sends back."""

    cost_ms: float
    traces: Sequence[tuple[TraceStep, ...]]
    stop_reason: StopReason
    counts: Counts
    curve: Sequence[CurvePoint]
    seconds: float


def solve_in_parallel(make_problem: MakeProblem, strategy: Strategy, budget: Budget, seed: int, workers: int) -> Result:
    """The best that ``workers`` processes find. Raises :class:`UsageError` where more than one worker makes no sense.

    Ctrl-C ends all of them with the best so far.
    """
    if workers < 1:
        raise UsageError(f"The number of workers is {workers}; expected at least 1.")
    randomised, shares = (getattr(strategy, name, False) for name in ("randomised", "shares"))
    if not (randomised or shares) or not strategy.has_trace:
        raise UsageError(
            f"The search strategy {strategy.name!r} draws no random numbers and has no first choices to share out, so "
            "every worker would find the same; use one worker, or another strategy (annealing, backtracking, beam, "
            "genetic, mcts, portfolio, random)."
        )
    seeds = [int(child.generate_state(1, np.uint64)[0] >> 1) for child in np.random.SeedSequence(seed).spawn(workers)]
    share = shared_out(budget, workers)
    from rlflow.spawning import safe_context

    context = safe_context()  # a copy of this process could inherit a runtime's threads and locks
    with InterruptGuard(StopToken()), context.Pool(workers) as pool:
        parts = [(0, 1) if randomised else (worker, workers) for worker in range(workers)]
        jobs = [
            pool.apply_async(_work, (make_problem, describe(strategy), share, one, part))
            for one, part in zip(seeds, parts, strict=True)
        ]
        outcomes = [job.get() for job in jobs]
    return _joined(make_problem(budget, seed), strategy, outcomes)


def shared_out(budget: Budget, workers: int) -> Budget:
    """What each worker may spend: counts are divided (at least one each), seconds are not."""

    def part(limit: int | None) -> int | None:
        return None if limit is None else max(1, limit // workers)

    return replace(
        budget,
        candidates=part(budget.candidates),
        expansions=part(budget.expansions),
        measurements=part(budget.measurements),
    )


def _work(make_problem: MakeProblem, spec: str, budget: Budget, seed: int, part: tuple[int, int]) -> _Outcome:
    """One worker's search; runs in its process."""
    problem = make_problem(budget, seed)
    problem.share = part
    with InterruptGuard(problem.stop):
        result = make(spec).run(problem, np.random.Generator(np.random.PCG64(seed)))
    traces = [one.trace or () for one in (result.best, *result.runners_up)]
    return _Outcome(
        result.cost_after_ms, traces, result.stop_reason, result.counts, tuple(result.curve), result.seconds
    )


def _joined(problem: Problem, strategy: Strategy, outcomes: Sequence[_Outcome]) -> Result:
    """All that was found, in one problem: ties go to the worker with the lower number."""
    for outcome in sorted(outcomes, key=lambda one: -one.cost_ms):
        for trace in reversed(outcome.traces):
            problem.replayed(trace)
    result = problem.result(_reason([one.stop_reason for one in outcomes]), strategy.name)
    counts = Counts(*(sum(values) for values in zip(*(one.counts for one in outcomes), strict=True)))
    seconds = max(one.seconds for one in outcomes)
    return replace(result, counts=counts, seconds=seconds, curve=_curve(outcomes))


def _reason(reasons: Sequence[StopReason]) -> StopReason:
    """Interrupted or a limit, if that ended any of them; exhausted, if that is true of all."""
    if StopReason.INTERRUPTED in reasons:
        return StopReason.INTERRUPTED
    ended = [reason for reason in reasons if reason.is_budget] or [reason for reason in reasons if reason is not _ALL]
    return next(iter(ended), _ALL)


def _curve(outcomes: Sequence[_Outcome]) -> tuple[CurvePoint, ...]:
    """The best of all over what all spent until then, if they go in step."""
    n = len(outcomes)
    points = sorted(
        (point for outcome in outcomes for point in outcome.curve),
        key=lambda point: (point.expansions, point.candidates, -point.cost_ms),
    )
    curve: list[CurvePoint] = []
    for point in points:
        if not curve or point.cost_ms < curve[-1].cost_ms:
            spent = (point.candidates * n, point.expansions * n, point.measurements * n)
            before = curve[-1] if curve else point
            curve.append(
                CurvePoint(
                    max(point.seconds, before.seconds),
                    max(spent[0], before.candidates),
                    max(spent[1], before.expansions),
                    max(spent[2], before.measurements),
                    point.cost_ms,
                )
            )
    return tuple(curve)
