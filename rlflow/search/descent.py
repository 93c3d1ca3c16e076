"""Downhill in large steps: many disjoint improving rewrites are applied before the candidates are enumerated again.

On a network of repeated blocks the same improvement is open in many places at once. Rewrites whose matches share no
node do not disturb each other, so a whole round of them costs one enumeration. What a round did *not* take, because
something better touched the same nodes, is remembered as an alternative: two rewrites that exclude each other are a
real choice, and the better one now may be the worse one later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlflow.search.greedy import measured_ranking
from rlflow.search.problem import MoveTable, Problem, SearchNode

#: A round takes only rewrites that gain at least this share of the best one: large gains first, because they may
#: exclude small ones.
ROUND_SHARE = 0.1


@dataclass(frozen=True)
class Alternative:
    """A round that makes another choice: the candidates (positions in ``table``) in the order in which they are to be
    taken.

    The first ``forced`` of them are the choices that differ from the greedy order. ``regret_ms``: how much less they
    promise.
    """

    table: MoveTable
    ranking: tuple[int, ...]
    forced: int
    regret_ms: float


def descend(problem: Problem, node: SearchNode) -> tuple[SearchNode, MoveTable, list[Alternative]]:
    """From ``node`` to a graph that no single rewrite improves; its candidates, and the choices passed over."""
    alternatives: list[Alternative] = []
    while True:
        table = problem.moves(node)
        ranking = _worth_taking(table, measured_ranking(problem, table))
        lower, passed = take_round(problem, Alternative(table, tuple(ranking), 0, 0.0))
        if lower is None:
            return node, table, alternatives
        alternatives.extend(passed)
        node = lower


def take_round(problem: Problem, plan: Alternative) -> tuple[SearchNode | None, list[Alternative]]:
    """Apply the candidates of a plan that touch disjoint nodes and really gain; ``None`` where none of them does."""
    table = plan.table
    start = here = table.node
    owner: dict[int, int] = {}
    passed: list[Alternative] = []
    for k in plan.ranking:
        nodes = table.touched(k).tolist()
        clash = next((owner[identifier] for identifier in nodes if identifier in owner), None)
        if clash is not None:
            if clash not in plan.ranking[: plan.forced]:
                passed.append(_instead(plan, k, clash))
            continue
        child = problem.open(here, table.index[k]) if here is start else problem.reopen(start, table.index[k], here)
        if child is not None and problem.improves(child, here):
            here = child
            owner.update(dict.fromkeys(nodes, k))
    return (None if here is start else here), passed


def _instead(plan: Alternative, k: int, clash: int) -> Alternative:
    """The plan with ``k`` forced and ``clash`` left out."""
    forced = (*plan.ranking[: plan.forced], k)
    rest = tuple(other for other in plan.ranking[plan.forced :] if other not in (k, clash))
    regret = float(plan.table.cost[k] - plan.table.cost[clash])
    return Alternative(plan.table, forced + rest, len(forced), plan.regret_ms + max(0.0, regret))


def _worth_taking(table: MoveTable, ranking: Sequence[int]) -> list[int]:
    if not ranking:
        return []
    here = table.node.cost
    best = here - table.cost[ranking[0]]
    return [k for k in ranking if here - table.cost[k] >= ROUND_SHARE * best] if best > 0 else list(ranking)
