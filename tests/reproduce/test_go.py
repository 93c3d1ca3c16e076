"""GO's bench at a toy's size: rows of families that were left out, DOPPLER's rules, and the two rivals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlflow import nn
from rlflow.placement import PLACERS, Devices, PlacementTask, Work, lower_bound

pytestmark = pytest.mark.skipif(nn.available() is not None, reason="torch is not installed; pip install 'rlflow[rl]'")
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "reproduce" / "go"), str(ROOT / "reproduce" / "common")]

import doppler  # noqa: E402 - from reproduce/go
import learned  # noqa: E402
import reality  # noqa: E402
import rivals  # noqa: E402


class Kept:
    """Rows, and whether one is among them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def have(self, **fields: Any) -> bool:
        return any(all(row.get(one) == fields[one] for one in fields) for row in self.rows)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "FAMILIES", ("gnmt", "nasnet", "wavenet"))


def test_a_row_for_each_family_and_task_that_is_not_there_yet(
    toy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlflow.agents.go import deciding, teaching  # the latter keeps what it has imported

    assert teaching.best_of is deciding.best_of
    asked: list[float] = []
    real = deciding.best_of
    monkeypatch.setattr(deciding, "best_of", lambda policy, *rest, **how: (
        asked.append(float(policy.heads[0].weight.detach().sum())), real(policy, *rest, **how))[1])  # fmt: skip
    kept = Kept()
    kept.rows += learned.left_out("tiny", ["gnmt"], tmp_path, kept.have)
    assert [(row["family"], row["graph"], row["task"], row["seed"]) for row in kept.rows] == [
        ("gnmt", graph, task, 0) for graph in (0, 1) for task in ("placement", "ordering")
    ]
    for row in kept.rows:
        columns = {name: row[name] for name in learned.COLUMNS}
        assert all(value >= row["bound"] * (1 - 1e-9) for value in [*columns.values(), *row["others"].values()])
        assert {"random 4", "annealing 4", "annealing 8", "annealing 30"} <= set(row["others"])
    assert len(set(asked[-16:])) == 6  # eight columns on two graphs; each is fine-tuned on its own
    added = list(learned.left_out("tiny", None, tmp_path, kept.have))
    assert [row["family"] for row in added] == ["nasnet"] * 4
    kept.rows += added
    assert not list(learned.left_out("tiny", None, tmp_path, kept.have))


def test_a_column_with_steps_and_a_longer_one_try_as_many() -> None:
    full = learned.SETTINGS["full"]
    by_name = {name: full.way(name) for name in learned.COLUMNS}
    assert by_name["zero-shot alone"] == (True, 64, 0, 0) and by_name["untrained"] == (False, 1000, 8, 0)
    assert by_name["from scratch"] == (False, 1000, 8, 50) and by_name["fine-tuned"] == (True, 1000, 8, 50)
    assert by_name["untrained longer"] == (False, 1000 + 50 * 16 * 9, 8, 0)
    assert by_name["zero-shot longer"].tried < full.evaluations


def test_nothing_of_the_family_is_learnt_from_or_chosen_by(
    toy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlflow.agents.go import teaching

    seen: list[teaching.GoTraining] = []
    real = teaching.GoTraining.train
    monkeypatch.setattr(teaching.GoTraining, "train", lambda self, *a, **k: seen.append(self) or real(self, *a, **k))
    assert list(learned.left_out("tiny", ["nasnet"], tmp_path, lambda **fields: False))
    graphs = {one.title.split()[0] for one in [*seen[0].lessons, *seen[0].judged_on]}
    assert graphs == {"gnmt", "wavenet"}


def test_the_same_rows_again(toy: None, tmp_path: Path) -> None:
    first, second = (
        list(learned.left_out("tiny", ["gnmt"], tmp_path / name, lambda **fields: False)) for name in ("a", "b")
    )
    assert first == second


def test_trainings_side_by_side_make_the_same_rows(tmp_path: Path) -> None:
    alone, beside = (
        list(learned.left_out("tiny", None, tmp_path / str(jobs), lambda **fields: False, jobs=jobs)) for jobs in (1, 2)
    )
    assert sorted(alone, key=lambda row: row["key"]) == sorted(beside, key=lambda row: row["key"])
    kept = {row["family"]: row["others"] for row in alone if row["task"] == "ordering" and row["graph"] == 1}
    assert learned.others_on("nasnet", "tiny", tmp_path / "1")[1]["ordering"] == kept["nasnet"] != kept["gnmt"]
    assert not list(learned.left_out("tiny", None, tmp_path / "1", lambda **fields: False, seeds=[1], jobs=2))


def test_each_part_is_left_out(toy: None, tmp_path: Path) -> None:
    rows = list(learned.without("tiny", tmp_path, lambda **fields: fields["key"].endswith("no gate")))
    assert [row["part"] for row in rows] == ["whole", "no GNN", "no attention", "T = 1", "tasks apart", "no rules"]
    weights = {row["part"]: row["weights"] for row in rows}
    assert weights["no GNN"] < weights["whole"] and weights["no attention"] < weights["whole"]
    assert weights["T = 1"] == weights["whole"]
    assert all(0 < mean <= 10 for row in rows for mean in row["means"].values())


def test_figures_are_over_the_best_of_the_others_graph_by_graph() -> None:
    drawn = ((0, 2.0, 2.0), (0, 4.0, 1.0), (1, 2.0, 2.0), (1, 1.0, 1.0), (2, 2.0, 2.0), (2, 9.0, 1.0))
    rows = [{"seed": seed, "fine-tuned": found, "others": {"heft": best, "etf": 9.0}} for seed, found, best in drawn]
    assert learned.over_the_others(rows, lambda row: row["fine-tuned"]) == pytest.approx(2.0)  # of 2, 1 and 3


# --- DOPPLER ----------------------------------------------------------------------------------------------------------

GRAPH = """5
0
0,0,1,2
1,2,3,3
1e10,2e10
2e10,1e10
3e10,1e10
1e10,1e10
"""


def test_a_graph_is_read_and_placed(tmp_path: Path) -> None:
    (tmp_path / "diamond_5nodes.txt").write_text(GRAPH)
    task = PlacementTask(doppler.read_graph(tmp_path / "diamond_5nodes.txt"), doppler.machine(2))
    assert task.work.seconds.tolist() == [1, 2, 3, 1]
    # 1 + 2 + 3 + 1; 1, a hand-over of 2, 2, one of 1, 1; 1, one of 2, 3, one of 1, 1
    assert task.evaluate(np.array([0, 0, 0, 0])).objective == 7.0
    assert task.evaluate(np.array([0, 1, 0, 0])).objective == 7.0
    assert task.evaluate(np.array([0, 0, 1, 0])).objective == 8.0
    names = ["critical-path", "annealing", "GDP-style", "Placeto-style"]
    kept = Kept()
    kept.rows += doppler.placed(tmp_path, 64, 2, names, kept.have)
    assert [(row["placer"], row["evaluations"], row["seeds"]) for row in kept.rows] == [
        ("critical-path", 1, 1),
        ("annealing", 64, 2),
        ("GDP-style", 64, 2),
        ("Placeto-style", 64, 2),
    ]
    assert all(row["gap"] >= 1 for row in kept.rows)
    assert not list(doppler.placed(tmp_path, 64, 2, names, kept.have))
    assert [row["seeds"] for row in doppler.placed(tmp_path, 64, 3, names[1:2], kept.have)] == [3]


@pytest.mark.parametrize("rival", [rivals.gdp_style, rivals.placeto_style])
def test_a_rival_learns_keeps_to_its_evaluations_and_repeats_itself(rival: Any) -> None:
    """A chain with dear hand-overs: all on one device is best, and random placements are far from that."""
    chain = Work.of_edges([1.0] * 10, [(k, k + 1) for k in range(9)], [1.0] * 10)
    task = PlacementTask(chain, Devices.alike(2, bandwidth=0.3, latency=0.0))
    drawn = PLACERS.make("random", evaluations=4).decide(task, np.random.default_rng(0))
    before = task.spent
    found = rival(task, 150, 0)
    assert task.spent - before <= 150 + task.choices  # and what rewards are in units of
    assert lower_bound(task) <= found <= task.evaluate(drawn).objective
    assert rival(task, 150, 0) == found


def test_advantages_are_discounted_sums_less_their_mean() -> None:
    found = rivals._advantages(np.array([[0.0, 0.0], [1.0, 0.0]]))
    centred = np.array([[0.475, -0.475], [0.5, -0.5]])  # of 0.95 and 0 at the first step, 1 and 0 at the second
    assert np.allclose(found, centred / centred.std(), atol=1e-6)


# --- reality ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cut", "seconds"), [(1, 9.0), (3, 7.0), (5, 5.0), (7, 7.0)])
def test_requests_in_turn_take_as_long_as_the_slower_part(cut: int, seconds: float) -> None:
    chain = Work.of_edges([1.0] * 10, [(k, k + 1) for k in range(9)], [0.0] * 10)
    devices = Devices.alike(2, bandwidth=1e9, latency=0.0)
    assert reality.simulated(chain, cut, devices) == pytest.approx(seconds)


def test_what_is_handed_over_counts_where_it_is_the_slowest() -> None:
    chain = Work.of_edges([1.0] * 4, [(k, k + 1) for k in range(3)], [6.0] * 4)
    assert reality.simulated(chain, 2, Devices.alike(2, bandwidth=1.0, latency=0.0)) == pytest.approx(6.0)


def test_requests_wait_for_nothing_of_each_other() -> None:
    work = reality.repeated(Work.of_edges([1.0, 2.0], [(0, 1)], [3.0, 4.0]), 2)
    assert (work.tasks, work.maker.tolist()) == (4, [0, 1, 2, 3])
    assert [list(ones) for ones in work.readers] == [[1], [], [3], []]
    assert PlacementTask(work, Devices.alike(2, bandwidth=1e9)).evaluate(np.array([0, 0, 1, 1])).objective == 3.0


def test_cuts_are_where_shares_of_the_cost_end_and_something_can_be_handed_over() -> None:
    handed = np.array([0.0, 1.0, np.inf, 1.0, 1.0, 0.0])
    assert reality.cuts_at(np.array([1.0, 1.0, 1.0, 1.0, 6.0]), handed, (0.1, 0.14, 0.26, 0.9)) == [1, 3, 4]
