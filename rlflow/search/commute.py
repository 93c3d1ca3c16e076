"""Independent rewrites commute: of all the orders in which a set of them can be applied, one is enough.

Sleep sets (Godefroid, "Partial-order methods for the verification of concurrent systems", 1996, chapter 5): once the
candidate ``a`` of a graph was followed, the graphs below its sibling ``b`` that also contain ``a`` are known already,
as long as the two do not disturb each other. So ``a`` *sleeps* below ``b``, and goes on sleeping until something that
depends on it is applied. Looking at digests finds the same duplicates one by one, after they were priced; a sleeping
candidate is not even counted.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlflow.search.memory import resumable
from rlflow.search.node import MoveTable, SearchNode
from rlflow.search.problem import Problem
from rlflow.search.selection import Signature, signatures_of

#: Rewrites further apart than this many edges are independent: a condition may look at a node's readers.
_REACH = 1


@resumable
class Sleep(NamedTuple):
    """The rewrites that need not be tried at a graph. Hand it to :meth:`Problem.moves` as ``connected``."""

    asleep: frozenset[Signature] = frozenset()

    def part_of(self, node: SearchNode) -> SearchNode | None:
        """Nothing is known before the candidates are: see :meth:`select`."""
        return None

    def select(self, raw: Any, index: np.ndarray) -> np.ndarray:
        """The candidates that are awake."""
        if not self.asleep:
            return index
        awake = [signature not in self.asleep for signature in signatures_of(raw, index)]
        return index[np.array(awake, dtype=bool)]

    def below(
        self, problem: Problem, table: MoveTable, k: int, explored: Mapping[Signature, Container[Signature]]
    ) -> Sleep:
        """What sleeps below candidate ``k`` of ``table``.

        ``explored``: the siblings that were followed before, each with the candidates that were open below it. One
        below which ``k`` was not open any more stays awake: the order that begins with it does not exist.
        """
        taken = table.signatures[k]
        candidates = {s for s, still_open in explored.items() if taken in still_open} | self.asleep
        if not candidates:
            return self
        near = table.node.neighbourhood(table.touched(k).tolist(), _REACH)
        return Sleep(frozenset(s for s in candidates if near.isdisjoint(matched(s))))


def matched(signature: Signature) -> list[int]:
    """Ids of the nodes that a candidate matched."""
    return np.frombuffer(signature[1], dtype=np.uint32).tolist()
