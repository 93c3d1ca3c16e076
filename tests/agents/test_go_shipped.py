"""The policy of GO that ships: its card, and what it does better than fresh weights on graphs that it never saw."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'rlflow[rl]'")

from rlflow.agents.go import teaching  # noqa: E402
from rlflow.agents.go.config import TASKS, GoConfig  # noqa: E402
from rlflow.agents.go.lessons import TEST_SEED, drawn_lessons  # noqa: E402
from rlflow.agents.go.network import make_go  # noqa: E402
from rlflow.agents.go.trained import SHIPPED, GoCheckpoint, load_go  # noqa: E402
from rlflow.placement import PLACERS, Devices, PlacementTask  # noqa: E402
from rlflow.placement.sketches import FAMILIES, drawn_sketch  # noqa: E402
from rlflow.testing.placers import check_placer, layered_work  # noqa: E402

HELD_OUT = "gnmt"
#: Seeds of fresh weights; the training began with the first.
DOUBLES = (0, 1, 2)


def rows_of(
    families: list[str],
    tasks: tuple[str, ...],
    tried: int,
    doubles: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
    count: int = 2,
) -> list[dict[str, Any]]:
    """Of each graph and task: the policy and its doubles, in units of a usual decision; less is better."""
    monkeypatch.setattr(teaching, "TRIED", tried)
    policies = {"trained": load_go(SHIPPED)} | {f"untrained {seed}": make_go(GoConfig(), seed) for seed in doubles}
    return teaching.compared(policies, drawn_lessons(families, GoConfig(), TEST_SEED, tasks, count=count), 0)


def test_the_card_says_how_it_was_made() -> None:
    found = GoCheckpoint.load(SHIPPED)
    card = found.card
    assert found.config == GoConfig()  # `rlflow train go --held-out gnmt`, without options
    assert (card["seed"], card["held_out"]) == (0, [HELD_OUT])
    assert card["families"] == [name for name in FAMILIES if name != HELD_OUT]
    assert card["imitated"] == found.config.imitate and card["updates"] > 0


def test_on_the_family_that_was_held_out_it_does_what_the_card_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """To within what another processor's rounding changes in what is drawn. It decides no worse than the weights that
    it began with: on these two graphs nothing better is known than what both are told first.
    """
    said = GoCheckpoint.load(SHIPPED).card["tested"]
    rows = rows_of([HELD_OUT], TASKS, teaching.TRIED, DOUBLES[:1], monkeypatch)
    assert len(said) == len(rows) == 6
    for one, row in zip(said, rows, strict=True):
        assert (one["graph"], one["task"], one["nodes"]) == (row["graph"], row["task"], row["nodes"])
        assert row["trained"] == pytest.approx(one["trained"], rel=0.02)
        assert row["untrained 0"] == pytest.approx(one["untrained"], rel=0.02)
        assert row["trained"] < 1.001 * row["untrained 0"]


@pytest.mark.parametrize(("task", "tried", "most"), [("placement", 30, 0.998), ("ordering", 14, 1.0)])
def test_it_beats_untrained_weights_on_graphs_that_it_did_not_learn_on(
    task: str, tried: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty graphs of the families that it knows, fixed by a seed. On most of them there is nothing better than what
    both are told first. ``most``: of the geometric mean of the ratios to each double.
    """
    families = [name for name in FAMILIES if name != HELD_OUT]
    rows = rows_of(families, (task,), tried, DOUBLES, monkeypatch, count=6)
    assert len(rows) == 30
    ratios = np.array([[row["trained"] / row[f"untrained {seed}"] for row in rows] for seed in DOUBLES])
    assert np.exp(np.log(ratios).mean(axis=1)).max() < most
    if task == "placement":
        assert (ratios.min(axis=0) < 0.999).sum() >= 5 and (ratios.max(axis=0) > 1.001).sum() <= 1


DECIDES = """
import numpy as np
from rlflow.placement import PLACERS, Devices, PlacementTask
from rlflow.testing.placers import layered_work
task = PlacementTask(layered_work(np.random.default_rng(0), 8, 5), Devices.alike(3))
print(PLACERS.make("go", evaluations=9).decide(task, np.random.default_rng(1)).tolist())
"""


def test_it_is_what_the_placer_uses_and_decides_the_same_in_a_fresh_process() -> None:
    task = PlacementTask(layered_work(np.random.default_rng(0), 8, 5), Devices.alike(3))
    found = [
        PLACERS.make("go", evaluations=9, checkpoint=name).decide(task, np.random.default_rng(1)).tolist()
        for name in ("", str(SHIPPED))
    ]
    assert found[0] == found[1]
    run = subprocess.run([sys.executable, "-c", DECIDES], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(found[0])


def test_it_keeps_to_the_contract() -> None:
    check_placer(lambda: PLACERS.make("go", evaluations=20), evaluations=20)


def test_a_larger_network_on_more_devices() -> None:
    task = PlacementTask(drawn_sketch("rnnlm", 700, np.random.default_rng(3)).work(), Devices.alike(8, bandwidth=4e9))
    decisions = PLACERS.make("go", evaluations=2).decide(task, np.random.default_rng(0))
    assert decisions.shape == (task.nodes,)
    assert decisions.min() >= 0 and decisions.max() < 8
