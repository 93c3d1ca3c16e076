"""What searches and policies begin with."""

from __future__ import annotations

import numpy as np
import pytest

from rlflow.placement import PLACERS, Devices, PlacementTask, Work, rules_of_thumb
from rlflow.placement.fusing import FusingTask
from rlflow.placement.ordering import ORDERS, OrderingTask
from rlflow.placement.rules_of_thumb import best_by_rule
from rlflow.placement.sketches import drawn_sketch
from rlflow.testing.placers import layered_work

FORK = Work.of_edges([1.0, 4.0, 4.0, 1.0], [(0, 1), (0, 2), (1, 3), (2, 3)], [1.0] * 4)


@pytest.mark.parametrize(
    ("bandwidth", "found"),
    [(1e9, 6.0), (0.1, 10.0)],  # the branches side by side; a hand-over takes ten seconds: all on one device
)
def test_the_best_rule_depends_on_the_links(bandwidth: float, found: float) -> None:
    task = PlacementTask(FORK, Devices.alike(2, bandwidth=bandwidth, latency=0.0))
    ruled = best_by_rule(task)
    assert ruled.score == pytest.approx(found) == task.evaluate(ruled.decisions).objective
    assert ruled.spent == 5


def test_it_is_no_worse_than_any_rule_and_spends_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    task = PlacementTask(layered_work(np.random.default_rng(0), 8, 5), Devices.alike(3, bandwidth=1e8))
    alone = [PLACERS.make(name).decide(task, np.random.default_rng(0)) for name in
             ("single", "heft", "critical-path", "contiguous", "etf")]  # fmt: skip
    assert best_by_rule(task).score == task.scores(np.stack(alone)).min()
    for most, spent in ((0, 0), (1, 1), (3, 3), (9, 5)):
        before = task.spent
        assert best_by_rule(task, most).spent == spent == task.spent - before
    assert best_by_rule(task, 0).score == np.inf and np.array_equal(best_by_rule(task, 0).decisions, alone[1])
    monkeypatch.setattr(rules_of_thumb, "MOST_NODES", task.nodes - 1)
    assert best_by_rule(task).spent == 3  # of a large graph only what takes time in proportion to it


def test_orders_and_fusions_have_rules_too() -> None:
    sketch = drawn_sketch("wavenet", 60, np.random.default_rng(0))
    task = OrderingTask(sketch.flow())
    assert best_by_rule(task).score == min(task.peak(make(task)) for make in ORDERS.values())
    assert (best_by_rule(task).spent, best_by_rule(task, 2).spent, best_by_rule(task, 0).spent) == (5, 2, 0)
    fusing = FusingTask(sketch)
    assert best_by_rule(fusing).decisions.tolist() == [1] * fusing.nodes and best_by_rule(fusing).spent == 1


@pytest.mark.parametrize("name", ["annealing", "brkga"])
@pytest.mark.parametrize("evaluations", [1, 2, 5, 30])
def test_a_search_is_no_worse_than_the_rules_that_it_may_try(name: str, evaluations: int) -> None:
    task = PlacementTask(layered_work(np.random.default_rng(1), 6, 4), Devices.alike(2, bandwidth=1e8))
    before = task.spent
    made = PLACERS.make(name, evaluations=evaluations).decide(task, np.random.default_rng(0))
    spent = task.spent - before
    assert spent <= evaluations
    if name == "annealing":
        assert task.evaluate(made).objective <= best_by_rule(task, evaluations).score
