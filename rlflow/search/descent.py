"""Downhill in large steps: many disjoint improving rewrites are applied before the candidates are enumerated again.

On a network of repeated blocks the same improvement is open in many places at once. Rewrites whose matches share no
node do not disturb each other, so a whole round of them costs one enumeration. What a round did *not* take, because it
touches the same nodes as something better, is a real choice, and the better one now may be the worse one later: a round
remembers what it took, so that a search can come back for the rest. Where no single rewrite gains, the macros
(``macros.py``) are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlflow.search.greedy import measured_ranking
from rlflow.search.memory import resumable
from rlflow.search.node import MoveTable, SearchNode
from rlflow.search.problem import Problem

#: A round takes only rewrites that gain at least this share of the best one: large gains first, because they may
#: exclude small ones.
ROUND_SHARE = 0.1


@resumable
@dataclass
class Round:
    """What was taken among the candidates of one graph.

    ``gains``: milliseconds that each taken candidate (position in ``table``) brought. ``owner``: the candidate that
    took a node, by node id. ``visited``: digests of the graphs in between, the last one included.
    """

    table: MoveTable
    gains: dict[int, float] = field(default_factory=dict)
    owner: dict[int, int] = field(default_factory=dict)
    visited: list[bytes] = field(default_factory=list)

    def passed_over(self) -> Iterator[tuple[int, float]]:
        """Candidates that were not taken and touch nodes that were, with the gain of all that took these nodes."""
        for k in self.table.touching(self.owner):
            if k not in self.gains:
                owners = {self.owner[node] for node in self.table.touched(k).tolist() if node in self.owner}
                yield k, sum(self.gains[other] for other in owners)


def descend(problem: Problem, node: SearchNode) -> tuple[SearchNode, MoveTable, list[Round]]:
    """From ``node`` to a graph that no single rewrite improves; its candidates, and the rounds that led there."""
    return Descent(node).finish(problem)


@resumable
@dataclass(eq=False)
class Descent:
    """A way down that can be interrupted between two rounds.

    ``node``: how far it has come. ``rounds``: those that led there. ``table``: the candidates of its end.
    """

    node: SearchNode
    rounds: list[Round] = field(default_factory=list)
    table: MoveTable | None = None

    def finish(
        self, problem: Problem, keep: Callable[[], None] = lambda: None
    ) -> tuple[SearchNode, MoveTable, list[Round]]:
        """Go down to the end, if that was not reached yet; ``keep`` is called before every round."""
        while self.table is None:
            keep()
            table = problem.moves(self.node)
            lower, taken = _round(problem, table)
            if lower is None:  # many rewrites together may gain where none does
                wider = problem.widened(table)
                if wider is not table:
                    table = wider
                    lower, taken = _round(problem, table)
            if lower is None:
                self.table = table
            else:
                self.rounds.append(taken)
                self.node = lower
        return self.node, self.table, self.rounds


def _round(problem: Problem, table: MoveTable) -> tuple[SearchNode | None, Round]:
    return take_round(problem, table, _worth_taking(table, measured_ranking(problem, table)))


def take_round(problem: Problem, table: MoveTable, ranking: Sequence[int]) -> tuple[SearchNode | None, Round]:
    """Apply the candidates of ``ranking`` that touch disjoint nodes and really gain; ``None`` where none does."""
    start = here = table.node
    taken = Round(table)
    for k in ranking:
        nodes = table.touched(k).tolist()
        if any(node in taken.owner for node in nodes):
            continue
        child = problem.open(here, table.index[k]) if here is start else problem.reopen(start, table.index[k], here)
        if child is not None and problem.improves(child, here):
            taken.gains[k] = here.cost - child.cost
            taken.owner.update(dict.fromkeys(nodes, k))
            taken.visited.append(child.digest)
            here = child
    return (None if here is start else here), taken


def _worth_taking(table: MoveTable, ranking: Sequence[int]) -> list[int]:
    if not ranking:
        return []
    gains = table.node.cost - table.cost[np.asarray(ranking)]
    return [k for k, gain in zip(ranking, gains.tolist(), strict=True) if gain >= ROUND_SHARE * max(gains[0], 0.0)]
