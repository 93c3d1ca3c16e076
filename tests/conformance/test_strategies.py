"""The shipped suite over every registered strategy, and over variants whose options change the algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from rlflow import search
from rlflow.search import Problem, Result, StopReason
from rlflow.testing import CHECKS, TINY, Case, TinyProblem, check_strategy, optimum
from rlflow.testing.conformance import fresh_process_reproduces

#: Options that change the algorithm; on two problems, because the plain strategies run on all.
VARIANTS = [
    "greedy:pick=first",
    "backtracking:macro=off,causal=off",
    "backtracking:queue=3",
    "random:walks=3",
    "beam:width=2,macro=off",
    "mcts:policy=uct,depth=2,vertices=5",
    "annealing:steps=3,cycles=2",
    "genetic:population=3,undo=0.5,age=5",
    "portfolio:members=greedy+mcts(policy=uct;c=2)+random,slice=2",
    "xrlflow:decode=greedy",
    "xrlflow:decode=beam,width=2",
    "rlflow:descent=no,depth=1",
    "rlflow:worldmodel=latent",
]
FEW = ("plateau", "exclusive")


def case(spec: str, *rest: object) -> object:
    """A parameter set; a strategy that lacks what it needs on this machine is skipped with its reason."""
    reason = search.unavailable(spec)
    return pytest.param(spec, *rest, marks=pytest.mark.skipif(reason is not None, reason=str(reason)))


CASES = [
    *(case(name, tiny) for name in search.names() for tiny in TINY),
    *(case(variant, tiny) for variant in VARIANTS for tiny in TINY if tiny.name in FEW),
]
IN_PROCESS = [check for check in CHECKS if check is not fresh_process_reproduces]


@pytest.mark.parametrize("check", IN_PROCESS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("strategy", "tiny"), CASES, ids=lambda part: getattr(part, "name", part))
def test_every_strategy_conforms(strategy: str, tiny: TinyProblem, check: Callable[[Case], None]) -> None:
    check(Case(strategy, tiny))


@pytest.mark.parametrize("strategy", [case(name) for name in search.names()])
def test_a_fresh_process_with_another_hash_seed_gives_the_same(strategy: str) -> None:
    fresh_process_reproduces(Case(strategy, next(tiny for tiny in TINY if tiny.name == "exclusive")))


@pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: tiny.name)
def test_the_default_strategy_reaches_every_known_optimum(tiny: TinyProblem) -> None:
    known = optimum(tiny)
    result = search.solve(tiny.problem("2000x"))
    assert result.stop_reason is StopReason.EXHAUSTED
    assert result.cost_after_ms == pytest.approx(known.cost_ms, rel=1e-9)


@pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: tiny.name)
def test_an_exhausted_search_leaves_nothing_for_a_second_pass(tiny: TinyProblem) -> None:
    first = search.solve(tiny.problem("2000x"))
    again = search.solve(Problem(first.graph, tiny.ruleset(), tiny.cost_model(), "2000x"))
    assert first.stop_reason is StopReason.EXHAUSTED
    assert again.best.digest == first.best.digest


@dataclass(frozen=True)
class _Cheat:
    """A strategy with a fault; the suite has to notice."""

    fault: str = "none"

    name: ClassVar[str] = "cheat"
    has_trace: ClassVar[bool] = True

    def run(self, problem: Problem, rng: np.random.Generator) -> Result:
        from dataclasses import replace

        result = search.make("greedy").run(problem, rng)
        if self.fault == "trace":
            return replace(result, best=result.best._replace(trace=(result.trace or ())[:-1]))
        if self.fault == "cost":
            return replace(result, best=result.best._replace(cost_ms=result.cost_after_ms / 2))
        if self.fault == "reason":
            return replace(result, stop_reason=StopReason.BUDGET_CANDIDATES)
        if self.fault == "curve":
            return replace(result, curve=tuple(reversed(result.curve)))
        if self.fault == "no-trace":
            return replace(result, best=result.best._replace(trace=None))
        if self.fault == "seed":
            return replace(result, seed=int(np.random.default_rng().integers(1 << 60)))
        return result


@pytest.mark.parametrize("fault", ["trace", "cost", "reason", "curve", "no-trace", "seed"])
def test_the_suite_catches_a_strategy_that_cheats(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlflow.search import strategies

    monkeypatch.setitem(strategies.STRATEGIES.opened, "cheat", _Cheat)
    twins = [tiny for tiny in TINY if tiny.name == "twins"]
    check_strategy("cheat", twins, IN_PROCESS)  # without a fault it is a strategy like any other
    with pytest.raises(AssertionError):
        check_strategy(f"cheat:fault={fault}", twins, IN_PROCESS)
