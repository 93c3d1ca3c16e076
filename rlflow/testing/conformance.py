"""What every search strategy must do, as checks that raise ``AssertionError`` with a sentence.

>>> from rlflow.testing import check_strategy
>>> check_strategy("my-strategy:option=3")

A strategy that keeps no trace says so (``has_trace = False``); nothing else can be declined.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rlflow.processes import python_command
from rlflow.search import (
    Budget,
    Problem,
    Result,
    StopReason,
    StopToken,
    describe,
    generator,
    make,
    replay,
    solve,
    solve_resumably,
)
from rlflow.testing.tiny import TINY, TinyProblem, by_name

_SEED = 7


@dataclass(frozen=True)
class Case:
    """A strategy, as a specification, on a tiny problem."""

    strategy: str
    tiny: TinyProblem

    def problem(self, budget: str | Budget, **options: Any) -> Problem:
        return self.tiny.problem(budget, **{"seed": _SEED, **options})

    def solve(self, budget: str | Budget, **options: Any) -> Result:
        return solve(self.problem(budget, **options), make(self.strategy))

    def __str__(self) -> str:
        return f"{self.strategy} on {self.tiny.name}"


class _Clock:
    """A clock that advances by one second every time it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def budget_is_honoured(case: Case) -> None:
    """No limit is exceeded; a search that ends for its budget says which limit."""
    for text in ("1c", "2c", "5c", "1x", "2x", "5x", "3c,1000x"):
        budget = Budget.parse(text)
        result = case.solve(budget)
        counts = result.counts
        assert budget.candidates is None or counts.candidates <= budget.candidates, f"{case}: {counts} exceeds {text}"
        assert budget.expansions is None or counts.expansions <= budget.expansions, f"{case}: {counts} exceeds {text}"
        if result.stop_reason is StopReason.BUDGET_CANDIDATES:
            assert counts.candidates == budget.candidates, f"{case}: stopped for candidates after {counts} of {text}"
        if result.stop_reason is StopReason.BUDGET_EXPANSIONS:
            assert counts.expansions == budget.expansions, f"{case}: stopped for expansions after {counts} of {text}"


def clock_is_honoured(case: Case) -> None:
    """A budget in seconds ends the search by the problem's clock, whatever the strategy is doing."""
    clock = _Clock()
    result = case.solve("40s", clock=clock)
    assert clock.now < 100, f"{case}: the clock was read {clock.now:.0f} times after a budget of 40 readings"
    if result.stop_reason is StopReason.BUDGET_SECONDS:
        assert result.seconds >= 40, f"{case}: stopped for time after {result.seconds} of 40 s"


def never_worse(case: Case) -> None:
    """The result costs at most what the start costs, and its cost is that of its graph."""
    result = case.solve("300x")
    cost, unknown = case.tiny.cost_model().pricer.price(result.graph)
    assert result.cost_after_ms <= result.cost_before_ms, (
        f"{case}: {result.cost_before_ms} became {result.cost_after_ms}"
    )
    assert unknown == 0, f"{case}: {unknown} regions of the result have no price"
    assert abs(cost - result.cost_after_ms) <= 1e-9 * cost, (
        f"{case}: says {result.cost_after_ms}, its graph costs {cost}"
    )
    digests = [visited.digest for visited in (result.best, *result.runners_up)]
    assert len(set(digests)) == len(digests), f"{case}: a graph occurs twice among the best"


def curve_is_monotone(case: Case) -> None:
    """The anytime curve starts at the start, falls, and ends at the result."""
    result = case.solve("300x")
    costs = [point.cost_ms for point in result.curve]
    assert costs[0] == result.cost_before_ms, f"{case}: the curve is {costs}"
    assert costs[-1] == result.cost_after_ms, f"{case}: the curve is {costs}"
    assert all(after < before for before, after in pairwise(costs)), f"{case}: the curve rises: {costs}"
    spent = [point[:4] for point in result.curve]
    assert all(all(a <= b for a, b in zip(one, two, strict=True)) for one, two in pairwise(spent)), f"{case}: {spent}"


def trace_replays(case: Case) -> None:
    """The trace leads from the start to a graph of the same digest, for the best and for each of the runners-up."""
    result = case.solve("300x")
    for visited in (result.best, *result.runners_up):
        if visited.trace is None:
            assert not make(case.strategy).has_trace, (
                f"{case}: the result has no trace, and the strategy does not say so"
            )
            continue
        again = replay(case.tiny.graph(), case.tiny.ruleset(), [step.to_dict() for step in visited.trace])
        assert again.digest == visited.digest, f"{case}: the trace of {len(visited.trace)} steps leads elsewhere"


def seed_reproduces(case: Case) -> None:
    """Twice the same seed in one process: the same graph, trace and counts."""
    first, second = (fingerprint(case.solve("200x")) for _ in range(2))
    assert first == second, f"{case}: two runs with one seed differ: {first} and {second}"


def fresh_process_reproduces(case: Case) -> None:
    """The same in new processes with other hash seeds."""
    here = fingerprint(case.solve("100x"))
    for hash_seed in ("1", "4242"):
        there = _in_fresh_process(case, "100x", hash_seed)
        assert there == here, f"{case}: a fresh process with hash seed {hash_seed} gives {there}, this one {here}"


def interrupt_returns_best(case: Case) -> None:
    """A stop request ends the search with the best graph so far."""
    early = StopToken()
    early.stop()
    result = case.solve("1000x", stop=early)
    assert result.cost_after_ms <= result.cost_before_ms, f"{case}: is worse than the start"
    assert result.counts.expansions == 0, f"{case}: went on after a stop request"
    token = StopToken()
    result = _stopped_after(case, token, expansions=3)
    if token.stopped:
        assert result.stop_reason is StopReason.INTERRUPTED, f"{case}: was stopped, says {result.stop_reason}"
        assert result.counts.expansions <= 3, f"{case}: opened {result.counts.expansions} nodes, was stopped after 3"
    assert result.cost_after_ms == min(point.cost_ms for point in result.curve), f"{case}: lost the best graph"


def _stopped_after(case: Case, token: StopToken, expansions: int) -> Result:
    problem = case.problem("1000x", stop=token, clock=_Clock())
    problem.events.listener = lambda progress: token.stop() if progress.expansions >= expansions else None
    return solve(problem, make(case.strategy))


def resume_goes_on(case: Case) -> None:
    """Interrupted twice and resumed, a search ends no worse than its checkpoints; where the strategy says ``goes_on``,
    it is to the byte the search that was never interrupted.
    """
    strategy = make(case.strategy)
    if not strategy.has_trace:
        return  # declared: what has no trace is refused
    with tempfile.TemporaryDirectory(prefix="rlflow-resume-") as folder:
        path, last = Path(folder) / "search.json", None
        for budget in ("11x", "19x", "30x"):
            problem = case.problem(budget)
            result = solve_resumably(problem, strategy, path, resume=True, every=0.0, rng=generator)
            assert last is None or result.cost_after_ms <= last.cost_after_ms, f"{case}: became worse when it went on"
            if not result.stop_reason.is_budget:
                return
            last = result
    if last is not None and getattr(strategy, "goes_on", False):
        here, there = fingerprint(case.solve("60x")), fingerprint(last)
        differ = [name for name in here if here[name] != there[name]]
        assert not differ, f"{case}: interrupted and resumed, the search has other {', '.join(differ)}"


CHECKS: tuple[Callable[[Case], None], ...] = (
    budget_is_honoured,
    clock_is_honoured,
    never_worse,
    curve_is_monotone,
    trace_replays,
    seed_reproduces,
    fresh_process_reproduces,
    interrupt_returns_best,
    resume_goes_on,
)


def check_strategy(
    strategy: str, problems: Iterable[TinyProblem] = TINY, checks: Iterable[Callable[[Case], None]] = CHECKS
) -> None:
    """Run all checks of a strategy on all problems; raises ``AssertionError`` at the first that fails."""
    spec = describe(make(strategy))
    for tiny in problems:
        for check in checks:
            check(Case(spec, tiny))


def fingerprint(result: Result) -> dict[str, Any]:
    """What must not depend on the process: everything but the clock."""
    plain = result.to_dict()
    del plain["seconds"]
    plain["curve"] = [{key: value for key, value in point.items() if key != "seconds"} for point in plain["curve"]]
    return json.loads(json.dumps(plain))


def _in_fresh_process(case: Case, budget: str, hash_seed: str) -> dict[str, Any]:
    done = subprocess.run(
        python_command(__name__, "fresh", [case.strategy, case.tiny.name, budget]),
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{case}: the fresh process failed: {done.stderr.strip().splitlines()[-1:]}"
    return json.loads(done.stdout)


def fresh() -> None:
    """Entry point of the fresh process: writes the fingerprint of a run to stdout."""
    strategy, tiny, budget = sys.argv[1:]
    sys.stdout.write(json.dumps(fingerprint(Case(strategy, by_name(tiny)).solve(budget))))
