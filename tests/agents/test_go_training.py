"""GO's training from end to end, what it keeps, and the placer that decides by it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'rlflow[rl]'")

from click.testing import CliRunner  # noqa: E402

from rlflow.agents.go import teaching  # noqa: E402
from rlflow.agents.go.config import GoConfig  # noqa: E402
from rlflow.agents.go.lessons import TEST_SEED, drawn_lessons, lesson_of  # noqa: E402
from rlflow.agents.go.network import make_go  # noqa: E402
from rlflow.agents.go.teaching import GoTraining, compared, score_of  # noqa: E402
from rlflow.agents.go.trained import GoCheckpoint, load_go  # noqa: E402
from rlflow.cli import main  # noqa: E402
from rlflow.errors import ModelError, UsageError  # noqa: E402
from rlflow.nn.checkpoint import shipped  # noqa: E402
from rlflow.placement import PLACERS, Devices, PlacementTask  # noqa: E402
from rlflow.testing.placers import check_placer, layered_work  # noqa: E402

SMALL = GoConfig(
    hidden=16, heads=2, layers=2, segment=8, samples=4, pool=1, smallest=20, largest=30, epochs=2, demonstrations=0,
    batch=1,
)  # fmt: skip

FOUR = layered_work(np.random.default_rng(0), 2, 2)


def lesson(nodes: int = 20, config: GoConfig = SMALL):
    sized = dataclasses.replace(config, smallest=nodes, largest=nodes)
    return drawn_lessons(["inception"], sized, 0)[0]


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held-out graphs are tried at the end of each training; a few decisions do."""
    monkeypatch.setattr(teaching, "TRIED", 5)


class _StopAt:
    """A stop token that is set when it is asked for the n-th time."""

    def __init__(self, n: int) -> None:
        self.left = n

    @property
    def stopped(self) -> bool:
        self.left -= 1
        return self.left <= 0


def trained(out: Path, config: GoConfig, *stops: int) -> tuple[GoCheckpoint, GoCheckpoint]:
    """(the best, the last) of a training of four updates that was stopped and resumed so often."""
    for turn, stop in enumerate((*stops, 1 << 30)):
        training = GoTraining(["wavenet"], config, out=out, seed=3, held_out=["nasnet"], resume=turn > 0)
        training.train(4, judge_every=2, stop=_StopAt(stop))
    return GoCheckpoint.load(out), GoCheckpoint.load(f"{out}.last")


@pytest.mark.parametrize(
    ("changes", "stops"),
    [
        ({}, (3,)),
        ({"demonstrations": 20, "imitate": 2, "batch": 2, "pool": 3}, (7,)),
        ({"demonstrations": 20, "imitate": 2, "batch": 2, "pool": 3}, (1, 3, 2, 1)),  # among what is shown
    ],
)
def test_a_resumed_training_is_bit_for_bit_the_one_that_was_not_interrupted(
    tmp_path, changes: dict, stops: tuple[int, ...]
) -> None:
    config = dataclasses.replace(SMALL, **changes)
    whole, parts = trained(tmp_path / "whole.npz", config), trained(tmp_path / "parts.npz", config, *stops)
    for one, other in zip(whole, parts, strict=True):
        assert one.weights.keys() == other.weights.keys()
        assert all(np.array_equal(one.weights[name], other.weights[name]) for name in one.weights)
        assert {**one.card, "seconds": 0} == {**other.card, "seconds": 0}
    assert whole[1].progress["rewards"] == parts[1].progress["rewards"]
    assert whole[1].progress["rng"] == parts[1].progress["rng"]
    with pytest.raises(UsageError, match="other models, seed or options"):
        GoTraining(["wavenet"], config, out=tmp_path / "parts.npz", seed=4, held_out=["nasnet"], resume=True)


def test_a_training_that_is_stopped_at_once_keeps_what_it_has(tmp_path) -> None:
    config = dataclasses.replace(SMALL, demonstrations=20)
    best, last = (tmp_path / "go.npz", tmp_path / "go.npz.last")
    card = GoTraining(["wavenet"], config, out=best).train(4, stop=_StopAt(1)).card
    assert (card["updates"], card["imitated"], card["demonstrated"]) == (0, 0, 0)
    assert best.exists() and last.exists()


def test_what_is_told_while_it_learns(tmp_path) -> None:
    told: list[dict] = []
    config = dataclasses.replace(SMALL, demonstrations=20, imitate=3)
    GoTraining(["wavenet"], config).train(2, judge_every=2, on_update=told.append, logs=tmp_path)
    assert [one.get("imitated", one.get("update")) for one in told] == [1, 2, 3, 1, 2]
    assert ["score" in one for one in told] == [False, True, True, False, True]
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [row["kind"] for row in rows] == ["imitation"] * 3 + ["update"] * 2 + ["evaluation"]


def test_a_checkpoint_is_judged_as_what_was_trained_and_says_what_it_is(tmp_path) -> None:
    training = GoTraining(["rnnlm"], SMALL, out=tmp_path / "go.npz", seed=1, held_out=["gnmt"], tasks=["placement"])
    found = training.train(2, judge_every=1)
    card = GoCheckpoint.load(tmp_path / "go.npz").card
    assert (card["families"], card["held_out"], card["tasks"]) == (["rnnlm"], ["gnmt"], ["placement"])
    assert (card["updates"], card["evaluations"]) == (2, 2 * SMALL.samples)
    policy = load_go(tmp_path / "go.npz")
    lessons = drawn_lessons(["rnnlm"], SMALL, 2, ["placement"], count=2)
    assert score_of(policy, lessons, 1) == pytest.approx(card["score"], abs=1e-6)
    assert card == found.card
    tests = drawn_lessons(["gnmt"], SMALL, TEST_SEED, ["placement"], count=2)
    assert card["tested"] == compared({"trained": policy, "untrained": make_go(SMALL, 1)}, tests, 1)
    assert [row["graph"] for row in card["tested"]] == ["gnmt 0", "gnmt 1"]


def test_a_family_that_is_held_out_is_not_learnt_on_and_chooses_nothing() -> None:
    training = GoTraining(["rnnlm"], SMALL, held_out=["gnmt"])
    assert {one.title.split()[0] for one in [*training.lessons, *training.judged_on]} == {"rnnlm"}
    assert {one.title.split()[0] for one in training.tested_on} == {"gnmt"}
    drawn = [[tuple(one.view.seconds) for one in some] for some in (training.lessons, training.judged_on)]
    assert not set(drawn[0]) & set(drawn[1])


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: GoTraining([], SMALL), "no family"),
        (lambda: GoTraining(["vgg"], SMALL), "vgg"),
        (lambda: GoTraining(["rnnlm"], SMALL, tasks=["sorting"]), "sorting"),
        (lambda: GoTraining(["rnnlm"], SMALL, held_out=["rnnlm"]), "both to learn on and held out"),
        (lambda: GoTraining(["rnnlm"], SMALL, held_out=["vgg"]), "vgg"),
        (lambda: GoConfig(hidden=10, heads=4), "'heads'"),
        (lambda: GoConfig(baseline="worst"), "'baseline'"),
        (lambda: GoConfig(samples=1), "'samples'"),
        (lambda: GoConfig(batch=0), "'batch'"),
        (lambda: GoConfig(demonstrations=-1), "'demonstrations'"),
        (lambda: GoConfig().with_options({"hiden": "3"}), "hiden"),
        (lambda: lesson_of("many", lesson().view, [PlacementTask(FOUR, Devices.alike(9))]), "8 choices"),
    ],
)
def test_what_cannot_be_is_refused(make, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        make()


def test_train_go_by_the_command_line(tmp_path) -> None:
    out = tmp_path / "mine.npz"
    sizes = [
        f"--set={name}={getattr(SMALL, name)}"
        for name in ("hidden", "heads", "segment", "samples", "pool", "smallest", "largest", "demonstrations", "batch")
    ]
    run = CliRunner().invoke(
        main, ["train", "go", "--families", "nasnet", "--updates", "2", "--out", str(out), "--quiet", *sizes]
    )
    assert run.exit_code == 0, run.output
    assert "2 updates, 24 evaluations" in run.output
    assert GoCheckpoint.load(out).config.hidden == 16
    refused = CliRunner().invoke(main, ["train", "go", "--families", "vgg", "--out", str(tmp_path / "no.npz")])
    assert refused.exit_code != 0
    assert "no family 'vgg'" in refused.output
    assert not (tmp_path / "no.npz").exists()


# --- the placer -------------------------------------------------------------------------------------------------------


def test_the_placer_keeps_to_the_contract() -> None:
    check_placer(lambda: PLACERS.make("go", evaluations=20, checkpoint="untrained"), evaluations=20)


def test_a_policy_of_ones_own_decides(tmp_path) -> None:
    GoTraining(["rnnlm"], SMALL, out=tmp_path / "own.npz", tasks=["placement"]).train(1)
    check_placer(lambda: PLACERS.make("go", evaluations=5, checkpoint=str(tmp_path / "own.npz")), evaluations=5)


def test_steps_on_the_graph_at_hand_are_no_worse() -> None:
    task = PlacementTask(layered_work(np.random.default_rng(5), 6, 4), Devices.alike(2, bandwidth=2e9))
    found = [
        task.evaluate(
            PLACERS.make(f"go:evaluations=1,steps={steps},checkpoint=untrained").decide(task, np.random.default_rng(0))
        )
        for steps in (0, 6)
    ]
    assert found[1].objective <= found[0].objective


@pytest.mark.parametrize(
    ("options", "part", "kind"),
    [
        ({"evaluations": 0}, "at least 1", UsageError),
        ({"steps": -1}, "0 steps", UsageError),
        ({"moves": -1}, "0 moves", UsageError),
        ({"checkpoint": "no-such.npz"}, "no checkpoint no-such.npz", ModelError),
    ],
)
def test_a_placer_that_cannot_be_is_refused(options: dict, part: str, kind: type[Exception]) -> None:
    task = PlacementTask(layered_work(np.random.default_rng(0), 2, 2), Devices.alike(2))
    with pytest.raises(kind, match=part):
        PLACERS.make("go", **options).decide(task, np.random.default_rng(0))


def test_a_checkpoint_of_another_agent_is_refused() -> None:
    with pytest.raises(ModelError, match="expected a go"):
        load_go(shipped("xrlflow"))
