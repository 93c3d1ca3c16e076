"""GO decides about parts of a graph while the rest stays, and goes on from what was best."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'rlflow[rl]'")

from rlflow.agents.go import surrogate  # noqa: E402
from rlflow.agents.go.config import GoConfig  # noqa: E402
from rlflow.agents.go.deciding import best_of, fine_tuned  # noqa: E402
from rlflow.agents.go.lessons import drawn_lessons  # noqa: E402
from rlflow.agents.go.neighbourhoods import drawn_regions  # noqa: E402
from rlflow.agents.go.network import UNDECIDED, make_go  # noqa: E402
from rlflow.placement import PlacementTask  # noqa: E402

SMALL = GoConfig(hidden=16, heads=2, segment=8, pool=1, smallest=30, largest=30)


@settings(deadline=None)
@given(nodes=st.integers(1, 60), seed=st.integers(0, 2**32 - 1))
def test_a_region_is_a_stretch_of_at_most_half_of_the_nodes(nodes: int, seed: int) -> None:
    found = drawn_regions(8, nodes, np.random.default_rng(seed))
    assert found.shape == (8, nodes) and found.any(axis=1).all()
    for row in found:
        places = np.flatnonzero(row)
        assert places[-1] - places[0] < max(1.0, nodes / 2)


def test_what_is_not_free_stays_and_is_told_alone() -> None:
    one, policy = drawn_lessons(["inception"], SMALL, 0)[0], make_go(SMALL, 0)
    free = [torch.zeros(3, one.view.nodes, dtype=torch.bool) for _ in one.tasks]
    for number, some in enumerate(free):
        some[0, 4:9], some[1, :], some[2, number] = True, True, True
    begun = [torch.from_numpy(np.random.default_rng(n).integers(0, 2, one.view.nodes)) for n in range(3)]
    drawn = surrogate.draw(policy, one, 3, np.random.default_rng(0), start=begun, free=free)
    chances, _ = surrogate.log_probs(policy, one, drawn)
    for number, some in enumerate(free):
        stays = ~some.expand(SMALL.iterations, 3, -1)
        assert torch.equal(drawn.decided[number][stays], begun[number].expand(SMALL.iterations, 3, -1)[stays])
        assert (drawn.log_probs[number][stays] == 0).all() and (drawn.log_probs[number][~stays] < 0).any()
        assert torch.allclose(chances[number], drawn.log_probs[number], atol=1e-5)
        assert torch.equal(drawn.first[number][1], begun[number])  # all are free: it is told all
        assert (drawn.first[number][0, 4:9] == UNDECIDED).all()
        assert torch.equal(drawn.first[number][0, 9:], begun[number][9:])


def test_where_nothing_was_decided_the_whole_is() -> None:
    begun = [torch.zeros(40, dtype=torch.int64), torch.full((40,), UNDECIDED)]
    some, whole = surrogate.regions(begun, 8, np.random.default_rng(0))
    assert whole.all() and some.any(dim=1).all() and not some.all(dim=1).any()
    some, whole = surrogate.some_parts(begun, 8, np.random.default_rng(0))
    assert whole.all() and some.all(dim=1).tolist() == [True] * 2 + [False] * 6


def test_the_first_iteration_goes_on_from_what_was_best_and_no_worse() -> None:
    one = drawn_lessons(["inception"], SMALL, 0)[0]
    task, before = one.tasks[0], one.start[0]
    assert isinstance(task, PlacementTask)
    one.go_on()
    assert one.start[0] is before  # nothing was seen
    one.kept[0], one.best[0] = np.ones((3, one.view.nodes), np.int64), -np.sqrt(before.score * 1.1 / one.reference[0])
    one.go_on()
    assert one.start[0] is before
    one.best[0] = -np.sqrt(before.score / one.reference[0])
    one.go_on()
    assert one.begun[0].tolist() == [1] * one.view.nodes and one.start[0].spent == before.spent


# --- with moves of annealing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("evaluations", "moves"), [(6, 8), (7, 8), (30, 0), (30, 1), (30, 8), (200, 8)])
def test_the_evaluations_are_those_that_were_asked_for(evaluations: int, moves: int) -> None:
    one, policy = drawn_lessons(["inception"], SMALL, 0)[0], make_go(SMALL, 0)
    spent, by_rule = [task.spent for _, task in one.asked()], max(start.spent for start in one.start)
    found = best_of(policy, one, evaluations, np.random.default_rng(0), moves=moves)
    now = [task.spent for _, task in one.asked()]
    assert [after - before for before, after in zip(spent, now, strict=True)] == [evaluations - by_rule] * 3
    for (score, row), (number, task) in zip(found, one.asked(), strict=True):
        assert score == task.scores(row[None])[0] <= one.start[number].score


def test_of_each_nine_evaluations_one_is_the_policys(monkeypatch: pytest.MonkeyPatch) -> None:
    one, policy, drawn = drawn_lessons(["nasnet"], SMALL, 0, ("placement",))[0], make_go(SMALL, 0), []
    real = surrogate.draw
    monkeypatch.setattr(
        "rlflow.agents.go.deciding.draw",
        lambda policy, lesson, count, *rest, **how: (drawn.append(count), real(policy, lesson, count, *rest, **how))[1],
    )
    best_of(policy, one, 5 + 9 * 41, np.random.default_rng(0), moves=8)
    assert drawn == [1] + [4] * 10


def test_moves_find_what_an_untrained_policy_does_not() -> None:
    sized, ratios = dataclasses.replace(SMALL, smallest=120, largest=120), []
    for family in ("inception", "nasnet", "wavenet"):
        one = drawn_lessons([family], sized, 0, ("placement",), count=2)[1]
        alone, both = (
            best_of(make_go(SMALL, 0), one, 500, np.random.default_rng(0), moves=moves)[0][0] for moves in (0, 8)
        )
        ratios.append(both / alone)
    assert max(ratios) < 1.02 and sorted(ratios)[1] < 0.99, ratios


def test_a_step_tells_the_policy_what_the_moves_found() -> None:
    one, policy = drawn_lessons(["inception"], SMALL, 0, ("placement",))[0], make_go(SMALL, 0)
    task, begun = one.tasks[0], one.start[0].score
    spent = task.spent
    fine_tuned(policy, one, 5, np.random.default_rng(0), moves=8)
    assert task.spent - spent == 5 * SMALL.samples * 9
    row = one.view.told(one.kept[0][-1]).astype(np.int32)
    value = task.scores(row[None])[0]
    assert value == pytest.approx(one.best[0] ** 2 * one.reference[0])
    assert value <= begun and one.start[0].score == pytest.approx(value)
    assert len(one.kept[0]) == SMALL.iterations


def test_moves_are_the_same_every_time() -> None:
    policy = make_go(SMALL, 0)
    rows = [
        best_of(policy, drawn_lessons(["rnnlm"], SMALL, 0)[0], 60, np.random.default_rng(5), moves=3) for _ in range(2)
    ]
    for (a, first), (b, second) in zip(*rows, strict=True):
        assert a == b and (first == second).all()
