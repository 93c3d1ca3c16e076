"""The tree search that three strategies share: which edge is next, what is handed up, and that it comes to an end."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from rlflow.search.tree import Vertex, back_up, puct, select, uct


@dataclass(eq=False)
class Place(Vertex):
    """A place of a small world: a word, whose edges are the letters that may follow."""

    word: str = ""


def place(word: str = "", edges: int = 2, prior: float = 0.5) -> Place:
    empty = np.zeros(edges)
    return Place(np.full(edges, prior), empty.copy(), empty.copy(), empty.copy(), np.ones(edges, dtype=bool), word)


@pytest.mark.parametrize(
    ("visits", "explore"),
    [
        ((0, 0), (1.0, 1.0)),  # nobody passed: the prior alone
        ((3, 0), (0.5, 2.0)),  # sqrt(1 + 3) / (1 + n)
        ((4, 4), (0.6, 0.6)),
    ],
)
def test_puct_weighs_the_prior_by_how_seldom_an_edge_was_tried(visits, explore) -> None:
    assert puct(np.ones(2), np.array(visits)) == pytest.approx(explore)


def test_uct_is_the_square_root_of_the_logarithm_of_all_over_own() -> None:
    found = uct(np.array([1, 4, 0]), 5)
    assert found[:2] == pytest.approx([math.sqrt(math.log(5)), math.sqrt(math.log(5) / 4)])
    assert np.isfinite(uct(np.zeros(1), 0)).all()


def test_the_way_down_takes_the_best_open_edge_and_the_first_of_equals() -> None:
    root, child = place(edges=3), place("b")
    root.children[1] = child
    assert select(root, lambda vertex: vertex.prior) == [(root, 0)]
    root.open_[0] = False
    assert select(root, lambda vertex: vertex.prior) == [(root, 1), (child, 0)]
    assert select(root, lambda vertex: np.arange(len(vertex.prior))) == [(root, 2)]


def test_what_is_found_is_counted_on_every_edge_of_the_way() -> None:
    root, child = place(), place("a")
    root.children[0] = child
    for gain in (0.3, 0.1):
        back_up([(root, 0), (child, 1)], gain)
    assert (root.visits.tolist(), child.visits.tolist()) == ([2, 0], [0, 2])
    assert root.total[0] == pytest.approx(0.4)
    assert (root.best[0], root.best[1]) == (0.3, 0.0)


def test_the_first_gain_replaces_a_promise_but_never_the_least_that_an_edge_is_worth() -> None:
    class Certain(Place):
        least = 0.2

    promised = place()
    promised.best[:] = 0.9
    back_up([(promised, 0)], 0.1)
    assert promised.best.tolist() == [0.1, 0.9]
    sure = Certain(*(np.full(1, 0.5), np.zeros(1), np.full(1, 0.2), np.zeros(1), np.ones(1, dtype=bool)))
    back_up([(sure, 0)], 0.1)
    assert sure.best.tolist() == [0.2]


@pytest.mark.parametrize("rule", ["puct", "uct"])
def test_every_word_is_opened_once_and_then_nothing_is_open(rule: str) -> None:
    """Two letters, three deep: 14 words. One that ends the tree closes its edge, and so its parent's."""

    def score(vertex: Place) -> np.ndarray:
        if rule == "puct":
            return vertex.best + puct(vertex.prior, vertex.visits)
        return np.where(vertex.visits > 0, vertex.best + uct(vertex.visits, 1 + int(vertex.visits.sum())), 1e6)

    root, opened = place(), []
    while not root.closed:
        path = select(root, score)
        vertex, k = path[-1]
        word = vertex.word + "ab"[k]
        opened.append(word)
        if len(word) < 3:
            vertex.children[k] = place(word)
        back_up(path, float(word == "bab"))
    assert len(opened) == len(set(opened)) == 14
    assert root.best.tolist() == [0.0, 1.0]
    assert root.visits.tolist() == [7, 7]
