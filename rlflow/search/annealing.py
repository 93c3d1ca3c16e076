"""Simulated annealing (Kirkpatrick, Gelatt and Vecchi 1983), without rejections.

The cost of every candidate is known before it is opened, so a step need not propose and reject: it draws from all
candidates at once, in proportion to ``exp(-change / temperature)`` (the n-fold way; Bortz, Kalos and Lebowitz 1975).
Each cycle cools from ``hot`` to ``cold`` and ends downhill. The next one is longer and starts hot again, every other
time from the best graph, else from a graph on the way down to it: not every rewrite can be undone. A walk does not
enter a graph twice within a cycle, or plateaus would hold it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.descent import Descent, descend
from rlflow.search.memory import resumable
from rlflow.search.node import MoveTable, SearchNode
from rlflow.search.problem import Problem
from rlflow.search.strategies import register
from rlflow.search.strategy_base import StrategyBase

#: How many times longer than the first a cycle becomes.
_LONGEST = 10.0


@resumable
@dataclass(eq=False)
class _Run:
    """``unit``: typical change of cost in ms. ``descent``: the first way down. ``cycle``: how many are over."""

    rng: np.random.Generator
    unit: float
    descent: Descent
    best: SearchNode | None = None
    on_the_way: list[SearchNode] = field(default_factory=list)
    cycle: int = 0


@register
@dataclass(frozen=True)
class Annealing(StrategyBase):
    """A walk that takes dearer graphs while it is hot, reheated again and again.

    ``hot``, ``cold``: temperatures of a cycle's ends, in units of a typical change of cost (the median over the
    starting graph's candidates that change it). ``steps``: of the first cycle. ``stretch``: each further cycle is so
    many times as long, up to ten times the first. ``cycles``: their number, 0 for as many as the budget allows.
    ``slack``: how much dearer than the first graph of its cycle a graph may be.
    """

    hot: float = 0.5
    cold: float = 0.02
    steps: int = 12
    stretch: float = 1.25
    cycles: int = 0
    slack: float = 1.2

    name: ClassVar[str] = "annealing"
    randomised: ClassVar[bool] = True
    goes_on: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if (
            not 0.0 < self.cold <= self.hot
            or self.steps < 1
            or self.cycles < 0
            or not (self.stretch >= 1.0 and self.slack >= 1.0)
        ):
            raise UsageError(
                f"The options of search strategy 'annealing' are hot={self.hot:g}, cold={self.cold:g}, "
                f"steps={self.steps}, stretch={self.stretch:g}, cycles={self.cycles}, slack={self.slack:g}; "
                "expected 0 < cold <= hot, at least one step, and a stretch and a slack of at least 1."
            )

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Cycle after cycle; an early end only where nothing can be rewritten."""
        run = problem.recall()
        if run is None:
            run = _Run(rng, typical_change(problem.moves(problem.root())), Descent(problem.root()))
        if run.best is None:
            best, table, rounds = run.descent.finish(problem, lambda: problem.keep(run))
            if len(table) == 0 and not rounds:
                return StopReason.EXHAUSTED
            run.best, run.on_the_way = best, [taken.table.node for taken in rounds] or [best]
        while not run.cycle == self.cycles > 0:
            problem.keep(run)
            if not self._reheated(problem, run):
                break
            run.cycle += 1
        return StopReason.CONVERGED

    def steps_of(self, cycle: int) -> int:
        """Length of a cycle; the power of a late one is beyond what a float holds."""
        late = cycle * math.log(self.stretch) >= math.log(_LONGEST)
        return int(self.steps * (_LONGEST if late else self.stretch**cycle))

    def _reheated(self, problem: Problem, run: _Run) -> bool:
        """One more cycle; whether any step could be taken."""
        assert run.best is not None
        steps = self.steps_of(run.cycle)
        starts = [run.best, run.on_the_way[int(run.rng.integers(len(run.on_the_way)))]]
        walks = (
            self._cycle(problem, run.rng, start, steps, run.unit) for start in starts[:: -1 if run.cycle % 2 else 1]
        )
        end = next((end for end in walks if end is not None), None)
        if end is not None and end.cost < run.best.cost - problem.gain_floor(run.best.cost):
            run.best = end
        return end is not None

    def _cycle(
        self, problem: Problem, rng: np.random.Generator, start: SearchNode, steps: int, unit: float
    ) -> SearchNode | None:
        """The cheapest graph of a walk and of the way down from its end; ``None`` where no step can be taken."""
        node = best = start
        seen = {start.digest}
        for step in range(steps):
            temperature = unit * self.hot * (self.cold / self.hot) ** (step / max(steps - 1, 1))
            k = self._draw(problem.moves(node), rng, temperature, seen, self.slack * start.cost)
            if k is None:
                break
            node = problem.open(node, k)
            seen.add(node.digest)
            best = min(best, node, key=lambda one: one.cost)
        if node is start:
            return None
        return min(best, descend(problem, node)[0], key=lambda one: one.cost)

    def _draw(
        self, table: MoveTable, rng: np.random.Generator, temperature: float, seen: set[bytes], ceiling: float
    ) -> int | None:
        allowed = table.cost <= ceiling
        for k in np.flatnonzero(allowed).tolist():
            allowed[k] = table.digests[k] not in seen
        choices = np.flatnonzero(allowed)
        if len(choices) == 0:
            return None
        return int(table.index[choices[draw_by_cost(rng, table.cost[choices], temperature)]])


def typical_change(table: MoveTable) -> float:
    """Median change of cost over the candidates that change it at all, in milliseconds; never zero."""
    changes = np.abs(table.cost - table.node.cost)
    changes = changes[changes > 1e-9 * max(table.node.cost, 1e-300)]
    return float(np.median(changes)) if len(changes) else 1e-3 * (table.node.cost or 1.0)


def draw_by_cost(rng: np.random.Generator, costs: np.ndarray, temperature: float) -> int:
    """A position, drawn in proportion to ``exp(-cost / temperature)``; ``costs`` [n] and ``temperature`` in ms."""
    weights = np.exp(-(costs - costs.min()) / temperature)
    return int(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum(), side="right").clip(0, len(costs) - 1))
