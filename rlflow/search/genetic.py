"""A genetic search over traces: the genes of a graph are the rewrites that made it.

Genes are *events* (``events.py``): they name a rewrite independently of the order of the others, so that two traces
are the same individual where they are permutations of each other, and what one parent found in one corner of the graph
can be added to what the other found elsewhere. A child starts from its first parent's graph and takes chains of
rewrites from the second; nothing is replayed but these. Every child goes downhill before it is judged (a memetic
algorithm; Moscato 1989).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.annealing import draw_by_cost, typical_change
from rlflow.search.budget import StopReason
from rlflow.search.descent import Descent, descend
from rlflow.search.events import Chronicle, dependents
from rlflow.search.memory import resumable
from rlflow.search.node import SearchNode
from rlflow.search.problem import Problem
from rlflow.search.selection import Connected
from rlflow.search.strategies import register
from rlflow.search.strategy_base import StrategyBase

#: Children in a row without a new graph after which the search gives up: everything near was seen.
_FRUITLESS = 60
#: Of the second parent's chains, the share that a child takes.
_TAKEN = 0.7
#: Branches of one value are two edges apart.
_NEAR = 2


@register
@dataclass(frozen=True)
class Genetic(StrategyBase):
    """A small population of graphs that exchange rewrites.

    ``population``: graphs kept. ``crossover``: share of children with two parents. ``undo``: share of children that
    lose a rewrite, and all that need it, before they are changed. ``mutation``: longest random chain of rewrites.
    ``temperature``: of the draw of random rewrites, in units of a typical change of cost. ``slack``: how much dearer
    than where it starts a chain may become. ``age``: children without a better graph after which all but the best are
    dropped.
    """

    population: int = 12
    crossover: float = 0.3
    undo: float = 0.1
    mutation: int = 4
    temperature: float = 0.5
    slack: float = 1.2
    age: int = 80

    name: ClassVar[str] = "genetic"
    randomised: ClassVar[bool] = True
    goes_on: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.population < 2 or self.mutation < 1 or self.age < 1:
            raise UsageError(
                f"The options of search strategy 'genetic' are population={self.population}, "
                f"mutation={self.mutation}, age={self.age}; expected a population of at least 2 and at least 1 of the "
                "others."
            )
        shares = self.crossover >= 0.0 and self.undo >= 0.0 and self.crossover + self.undo <= 1.0
        if not (shares and self.temperature > 0.0 and self.slack >= 1.0):
            raise UsageError(
                f"The options of search strategy 'genetic' are crossover={self.crossover:g}, undo={self.undo:g}, "
                f"temperature={self.temperature:g}, slack={self.slack:g}; expected two shares of together at most 1, "
                "a temperature above 0 and a slack of at least 1."
            )

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Child after child, until no new graph turns up."""
        run = problem.recall() or _Population(self, problem, Chronicle(problem, problem.root()), rng)
        return run.evolve()


@resumable
@dataclass(eq=False)
class _Population:
    options: Genetic
    whole: Problem
    problem: Chronicle
    rng: np.random.Generator
    members: list[SearchNode] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set)
    unit: float = 0.0  # typical change of cost in ms; 0 before the search begins
    descent: Descent | None = None  # the first way down
    best: SearchNode | None = None
    fruitless: int = 0  # children in a row that were not new
    idle: int = 0  # children since the best one

    def evolve(self) -> StopReason:
        if self.descent is None:
            self.unit = typical_change(self.problem.moves(self.problem.root()))
            self.descent = Descent(self.problem.root())
        if self.best is None:
            best, table, rounds = self.descent.finish(self.problem, self._keep)
            if len(table) == 0 and not rounds:
                return StopReason.EXHAUSTED
            self._admit(best)
            self.best = best
        while self.fruitless < _FRUITLESS:
            self._keep()
            self._next(self.best)
        return StopReason.CONVERGED

    def _keep(self) -> None:
        self.whole.keep(self)

    def _next(self, best: SearchNode) -> None:
        child = self._child()
        self.fruitless = 0 if self._admit(child) else self.fruitless + 1
        self.idle += 1
        if child.cost < best.cost - self.problem.gain_floor(best.cost):
            self.best, self.idle = child, 0
        if self.idle >= self.options.age:
            self.members, self.idle = [self.best or best], 0

    def _admit(self, node: SearchNode) -> bool:
        """Whether the graph is new; the dearest member makes room for it if need be."""
        if node.digest in self.seen:
            return False
        self.seen.add(node.digest)
        self.members = sorted([*self.members, node], key=lambda one: (one.cost, one.size, one.digest))
        del self.members[self.options.population :]
        return True

    def _child(self) -> SearchNode:
        kind = self.rng.random()
        one = self._parent()
        if kind < self.options.crossover and len(self.members) > 1:
            child = self._crossed(one, self._parent())
        elif kind < self.options.crossover + self.options.undo and self.problem.history(one).events:
            child = self._mutated(self._undone(one))
        else:
            child = self._mutated(one)
        return one if child.digest in self.seen else descend(self.problem, child)[0]

    def _parent(self) -> SearchNode:
        """The better of two members drawn at random (they are sorted)."""
        return self.members[int(self.rng.integers(len(self.members), size=2).min())]

    def _crossed(self, one: SearchNode, other: SearchNode) -> SearchNode:
        """``one`` with chains of rewrites from ``other``."""
        have = set(self.problem.history(one).events)
        events = self.problem.history(other).events
        left_out: set[bytes] = set()
        chosen = []
        for event in (event for event in events if event not in have):
            made_by = {name[: len(event.name)] for name in event.nodes if isinstance(name, bytes)}
            if made_by & left_out or (not made_by and self.rng.random() > _TAKEN):
                left_out.add(event.name)
            else:
                chosen.append(event)
        return self.problem.apply(one, chosen)

    def _undone(self, one: SearchNode) -> SearchNode:
        """``one`` without one of its rewrites and without those that need it."""
        events = self.problem.history(one).events
        gone = dependents(events, events[int(self.rng.integers(len(events)))])
        return self.problem.apply(self.problem.root(), [event for event in events if event not in gone])

    def _mutated(self, one: SearchNode) -> SearchNode:
        """``one`` after a random chain of rewrites, each of them made possible by those before, or near them."""
        known: frozenset[tuple[int, bytes]] = frozenset()
        node, connected = one, None
        for _ in range(int(self.rng.integers(1, self.options.mutation + 1))):
            table = self.problem.moves(node, connected)
            choices = np.flatnonzero(table.cost <= self.options.slack * one.cost)
            if len(choices) == 0:
                break
            if node is one:
                known = frozenset(table.signatures)
            k = choices[draw_by_cost(self.rng, table.cost[choices], self.options.temperature * self.unit)]
            node = self.problem.open(node, table.index[k])
            near = node.neighbourhood(node.nodes - one.nodes, _NEAR)
            connected = Connected(known, near)
        return node
