"""The bench of a learned order of rules in guided equality saturation: what is learnt from, and the table."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "reproduce" / "learning"), str(ROOT / "reproduce" / "common")]

import rule_order  # noqa: E402 - from reproduce/learning
from rule_order import Shown  # noqa: E402

from rlflow import search  # noqa: E402


@pytest.mark.parametrize(
    ("mine", "other", "better"),
    [
        (Shown([], ["a"], 1.0), None, True),
        (Shown([], ["a"], 1.1), Shown([], [], 1.0), True),  # more gain, by more rules
        (Shown([], ["a"], 1.0), Shown([], ["a", "b"], 1.0), True),
        (Shown([], ["a"], 1.0 - 1e-9), Shown([], ["a", "b"], 1.0), True),  # the same gain
        (Shown([], ["a", "b"], 1.0 + 1e-9), Shown([], ["a"], 1.0), False),
        (Shown([], [], 0.9), Shown([], ["a"], 1.0), False),
        (Shown([], ["a"], 1.0), Shown([], ["b"], 1.0), False),
    ],
)
def test_more_gain_is_better_and_then_fewer_rules(mine: Shown, other: Shown | None, better: bool) -> None:
    assert mine.beats(other) is better


@pytest.mark.parametrize(
    ("needed", "path", "left"),
    [
        ({0, 2}, [0, 1, 2, 1], ["r0", "r2"]),
        ({1}, [1, 1, 1], ["r1"]),
        (set(), [0, 1], []),
    ],
)
def test_a_path_keeps_the_rules_that_its_gain_needs(needed: set[int], path: list[int], left: list[str]) -> None:
    actions = [[SimpleNamespace(name=f"r{i}")] for i in range(3)]
    tree = SimpleNamespace(actions=actions, gain_of=lambda some: float(needed <= set(some)))
    assert rule_order.shortest(tree, path) == Shown(["r0", "r1", "r2"], left, 1.0)


def test_a_step_is_told_by_the_rules_before_it_alone() -> None:
    number = {"a": 4, "b": 7, "c": 9}
    made = rule_order.steps(Shown(["b", "c", "a"], ["a", "c"], 1.0), number)
    assert [(seen.last, seen.before, taken) for seen, taken in made] == [(-1, -1, 2), (4, -1, 1)]
    for seen, _ in made:
        assert seen.rule.tolist() == [7, 9, 4]
        assert all(len(set(part.tolist())) == 1 for part in (seen.change, seen.excess, seen.growth, seen.place))


def test_entrants_differ_in_the_prior_alone() -> None:
    guided = [search.make(rule_order.ENTRANTS[name]) for name in rule_order.ENTRANTS if name.startswith("guided")]
    assert [one.scheduler for one in guided] == ["mcts"] * 4
    assert len({one.prior for one in guided}) == 4
    assert len({(one.rounds, one.descent, one.extraction, one.simulations, one.nodes) for one in guided}) == 1


def test_the_table_has_means_over_the_seeds() -> None:
    rows = [{"name": "guided", "family": "a", "gain": 1.0}, {"name": "guided", "family": "a", "gain": 2.0},
            {"name": "greedy", "family": "a", "gain": 3.0}, {"name": "guided", "family": "b", "gain": 0.5}]  # fmt: skip
    assert rule_order.lines(rows)[3:] == ["| guided | 1.50 | 0.50 | 1.00 |", "| greedy | 3.00 |  | 3.00 |"]
