from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from rlflow.search.archive import MARGINS, Archive
from rlflow.search.result import Visited


def visited(steps: int, cost: float) -> Callable[[], Visited]:
    return lambda: Visited(None, f"{steps}:{cost}", cost, ())


def offer(archive: Archive, *points: tuple[int, float]) -> list[bool]:
    return [archive.add(steps, cost, 10, visited(steps, cost)) for steps, cost in points]


def test_the_cheapest_comes_first_and_a_nearly_as_cheap_one_with_fewer_steps_is_handed_on() -> None:
    archive = Archive()
    assert offer(archive, (0, 100.0), (5, 90.1), (6, 91.0), (20, 90.0), (30, 89.99)) == [True, True, False, True, True]
    assert archive.best_cost == 89.99
    assert [one.digest for one in archive.finalists()] == ["30:89.99", "5:90.1"]


def test_each_margin_hands_on_one_graph() -> None:
    archive = Archive()
    offer(archive, (0, 200.0), (3, 103.0), (4, 101.0), (5, 100.4), (9, 100.0))
    assert [one.cost_ms for one in archive.finalists()] == [100.0, 100.4, 101.0, 103.0]
    none = Archive(0)
    offer(none, (0, 2.0), (1, 1.0))
    assert [one.cost_ms for one in none.finalists()] == [1.0]


def test_ties_go_to_fewer_steps_then_to_fewer_nodes() -> None:
    archive = Archive()
    offer(archive, (0, 10.0), (5, 5.0), (3, 5.0), (4, 5.0))
    assert archive.finalists()[0].digest == "3:5.0"
    assert not archive.add(7, 5.0, 9, visited(7, 5.0))
    assert archive.finalists()[0].digest == "7:5.0"


def test_what_is_not_kept_is_not_made() -> None:
    archive = Archive()
    offer(archive, (0, 10.0), (1, 5.0))

    def fail() -> Visited:
        raise AssertionError("made in vain")

    assert not archive.add(2, 5.0, 10, fail)
    assert not archive.add(1, 6.0, 10, fail)
    assert not archive.add(9, 5.1, 10, fail)


def test_the_front_equals_that_of_all_points() -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        points = [(0, 2.0)] + [(int(rng.integers(1, 12)), float(rng.integers(95, 120)) / 100) for _ in range(40)]
        archive = Archive()
        offer(archive, *points)
        best = min(cost for _, cost in points)
        handed = archive.finalists()
        assert handed[0].cost_ms == best == archive.best_cost
        for margin in MARGINS:
            fewest = min(steps for steps, cost in points if cost <= best * (1 + margin))
            assert any(int(one.digest.split(":")[0]) == fewest for one in handed)
        assert all(one.cost_ms <= two.cost_ms for one, two in itertools.pairwise(handed))


def test_what_costs_no_number_is_not_kept() -> None:
    archive = Archive()
    assert offer(archive, (0, 2.0), (1, float("nan")), (2, 1.0)) == [True, False, True]
    assert [one.cost_ms for one in archive.finalists()] == [1.0]
