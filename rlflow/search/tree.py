"""The tree search that ``mcts``, ``xrlflow-mcts`` and guided equality saturation share: select, open, back up.

A strategy says what a vertex stands for, how its edges score and what is found behind one; here is the rest. A
simulation walks down along the edges that score best (:func:`select`), the strategy opens the last of them, and the
gain found there is handed up the path (:func:`back_up`). An edge is *open* while something new may lie behind it; a
vertex whose edges are all closed closes the edge that leads to it, so that a finite tree comes to an end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

#: What an edge that was never tried scores under UCT: more than any that was.
UNTRIED = 1e6


@dataclass(eq=False)
class Vertex:
    """A state in the tree. Arrays [n] run over its edges.

    ``prior``: how promising an edge is before it was tried. ``total``: sum of the gains of the simulations through it;
    ``best``: the best of them, and before the first one what the edge promises; ``visits``: their number. ``open_``:
    whether it is worth another simulation. ``children``: by edge, those that are in the tree.
    """

    prior: np.ndarray
    total: np.ndarray
    best: np.ndarray
    visits: np.ndarray
    open_: np.ndarray
    children: dict[int, Any] = field(default_factory=dict, kw_only=True)

    @property
    def closed(self) -> bool:
        """Whether nothing new is left here or below."""
        return not self.open_.any()

    @property
    def least(self) -> float:
        """What no edge is worth less than, whatever is found behind it."""
        return -math.inf


_V = TypeVar("_V", bound=Vertex)


def puct(prior: np.ndarray, visits: np.ndarray) -> np.ndarray:
    """[n]: the term of exploration of PUCT (Rosin 2011; Silver et al. 2017), ``prior * sqrt(N) / (1 + n)``."""
    return np.asarray(prior * math.sqrt(1 + visits.sum()) / (1 + visits))


def uct(visits: np.ndarray, parent: int) -> np.ndarray:
    """[n]: that of UCT (Kocsis and Szepesvari 2006), ``sqrt(ln(N) / n)``, where ``parent`` is N: how often the vertex
    was passed. It says nothing of edges that were never tried; they come first.
    """
    return np.asarray(np.sqrt(math.log(max(parent, 1)) / np.maximum(visits, 1)))


def select(root: _V, score: Callable[[_V], np.ndarray]) -> list[tuple[_V, int]]:
    """The way down from an open ``root``: at each vertex the open edge of the largest score [n], the first of several,
    until one leads out of the tree.
    """
    path, vertex = [], root
    while True:
        k = int(np.argmax(np.where(vertex.open_, score(vertex), -np.inf)))
        path.append((vertex, k))
        if k not in vertex.children:
            return path
        vertex = vertex.children[k]


def back_up(path: Sequence[tuple[Vertex, int]], gain: float) -> None:
    """Hand what was found behind the last edge of a path up to its first one. Edges behind which nothing is open any
    more are closed.
    """
    for vertex, k in reversed(path):
        vertex.best[k] = max(gain, vertex.best[k] if vertex.visits[k] else vertex.least)
        vertex.total[k] += gain
        vertex.visits[k] += 1
        vertex.open_[k] = k in vertex.children and not vertex.children[k].closed
