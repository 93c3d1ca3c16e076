"""Candidates by what they rewrite: how they are told apart from state to state, and which of them to look at."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from rlflow.search.node import SearchNode

#: Rule number, and the ids of the nodes that it matched: the same in parent and child where the match persists.
Signature = tuple[int, bytes]


class Selection(Protocol):
    """Which of a node's candidates to look at; the others are not counted."""

    def part_of(self, node: SearchNode) -> SearchNode | None:
        """``node`` with the selected candidates alone, where that can be told before they are evaluated."""
        ...

    def select(self, raw: Any, index: np.ndarray) -> np.ndarray:
        """The part of ``index`` (positions among the core's moves) that is selected."""
        ...


class Connected(NamedTuple):
    """Selects the candidates that are not among the ``known`` ones, or that touch one of the nodes ``near``.

    ``base``: the node whose candidates are the known ones. With it the others are never evaluated.
    """

    known: Container[Signature]
    near: Iterable[int]
    base: SearchNode | None = None

    def part_of(self, node: SearchNode) -> SearchNode | None:
        """``node`` with the selected candidates alone, where its state can tell them apart before it evaluates them."""
        near = getattr(node.state, "near", None)
        if self.base is None or near is None:
            return None
        return replace(node, state=near(self.base.state, self.near), raw=None)

    def select(self, raw: Any, index: np.ndarray) -> np.ndarray:
        """The part of ``index`` that is selected."""
        close = touches(raw, self.near)[index]
        new = np.array([signature not in self.known for signature in signatures_of(raw, index)], dtype=bool)
        return index[close | new]


def touches(raw: Any, nodes: Iterable[int]) -> np.ndarray:
    """For each of the core's moves, whether it matched one of the nodes."""
    touched, begins = np.asarray(raw.touched), np.asarray(raw.touched_begin)
    wanted = np.fromiter(nodes, dtype=np.int64)
    mark = np.zeros(int(touched.max(initial=0)) + 1, dtype=bool)
    mark[wanted[wanted < len(mark)]] = True
    hits = np.concatenate(([0], np.cumsum(mark[touched])))
    return hits[begins[1:]] > hits[begins[:-1]]


def touched_by(raw: Any, i: int) -> np.ndarray:
    """Ids of the nodes that the core's move ``i`` matched."""
    return np.asarray(raw.touched[raw.touched_begin[i] : raw.touched_begin[i + 1]])


def signatures_of(raw: Any, index: np.ndarray) -> list[Signature]:
    """The signatures of the core's moves at ``index``."""
    begins, touched, rules = (
        np.asarray(raw.touched_begin).tolist(),
        np.ascontiguousarray(raw.touched),
        np.asarray(raw.rule).tolist(),
    )
    return [(rules[i], touched[begins[i] : begins[i + 1]].tobytes()) for i in index.tolist()]


def position(raw: Any, wanted: Signature) -> int | None:
    """Which of the core's moves has the signature ``wanted``; ``None`` where none has."""
    index = np.flatnonzero(np.asarray(raw.rule) == wanted[0])
    found = zip(index.tolist(), signatures_of(raw, index), strict=True)
    return next((int(i) for i, signature in found if signature == wanted), None)
