"""GO's training from end to end, what it keeps, and the placer that decides by it."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'rlflow[rl]'")

from click.testing import CliRunner  # noqa: E402

from rlflow.agents.checkpoint import shipped  # noqa: E402
from rlflow.agents.go.config import GoConfig  # noqa: E402
from rlflow.agents.go.lessons import drawn_lessons, lesson_of  # noqa: E402
from rlflow.agents.go.teaching import GoTraining, score_of  # noqa: E402
from rlflow.agents.go.trained import GoCheckpoint, load_go  # noqa: E402
from rlflow.cli import main  # noqa: E402
from rlflow.errors import ModelError, UsageError  # noqa: E402
from rlflow.placement import PLACERS, Devices, PlacementTask  # noqa: E402
from rlflow.testing.placers import check_placer, layered_work  # noqa: E402

SMALL = GoConfig(hidden=16, heads=2, layers=2, segment=8, samples=4, pool=1, smallest=20, largest=30, epochs=2)

FOUR = layered_work(np.random.default_rng(0), 2, 2)


def lesson(nodes: int = 20, config: GoConfig = SMALL):
    sized = dataclasses.replace(config, smallest=nodes, largest=nodes)
    return drawn_lessons(["inception"], sized, 0)[0]


# --- training ---------------------------------------------------------------------------------------------------------


def weights(checkpoint: GoCheckpoint) -> dict[str, np.ndarray]:
    return checkpoint.weights


@pytest.mark.parametrize("changes", [{}, {"demonstrations": 20, "imitate": 2, "batch": 2, "pool": 3}])
def test_a_resumed_training_is_bit_for_bit_the_one_that_was_not_interrupted(tmp_path, changes: dict) -> None:
    config = dataclasses.replace(SMALL, **changes)
    whole = GoTraining(["wavenet"], config, out=tmp_path / "whole.npz", seed=3)
    whole.train(4, judge_every=2)
    first = GoTraining(["wavenet"], config, out=tmp_path / "two.npz", seed=3)
    stop = _StopAfter(2)
    first.train(4, judge_every=2, on_update=stop.count, stop=stop)
    second = GoTraining(["wavenet"], config, out=tmp_path / "two.npz", seed=3, resume=True)
    assert second.progress.updates == 2
    second.train(4, judge_every=2)
    ends = [GoCheckpoint.load(tmp_path / f"{name}.npz.last") for name in ("whole", "two")]
    assert ends[0].weights.keys() == ends[1].weights.keys()
    assert all(np.array_equal(ends[0].weights[name], ends[1].weights[name]) for name in ends[0].weights)
    assert ends[0].progress["rewards"] == ends[1].progress["rewards"]
    with pytest.raises(UsageError, match="other models, seed or options"):
        GoTraining(["wavenet"], config, out=tmp_path / "two.npz", seed=4, resume=True)


def test_a_training_that_is_stopped_while_it_imitates_begins_anew(tmp_path) -> None:
    class Stop:
        stopped = True

    config = dataclasses.replace(SMALL, demonstrations=20)
    training = GoTraining(["wavenet"], config, out=tmp_path / "go.npz")
    assert training.train(4, stop=Stop()).card["updates"] == 0
    assert (tmp_path / "go.npz").exists()
    assert not (tmp_path / "go.npz.last").exists()


class _StopAfter:
    """A stop token that stops after so many updates."""

    def __init__(self, updates: int) -> None:
        self.left, self.stopped = updates, False

    def count(self, figures: dict) -> None:
        self.left -= 1
        self.stopped = self.left == 0


def test_a_checkpoint_is_judged_as_what_was_trained_and_says_what_it_is(tmp_path) -> None:
    training = GoTraining(["rnnlm"], SMALL, out=tmp_path / "go.npz", seed=1, held_out=["gnmt"], tasks=["placement"])
    found = training.train(2, judge_every=1, logs=tmp_path / "logs")
    card = GoCheckpoint.load(tmp_path / "go.npz").card
    assert (card["families"], card["held_out"], card["tasks"], card["updates"]) == (
        ["rnnlm"],
        ["gnmt"],
        ["placement"],
        2,
    )
    assert card["evaluations"] == 2 * SMALL.samples
    lessons = drawn_lessons(["gnmt"], SMALL, 2, ["placement"], count=2)
    assert score_of(load_go(tmp_path / "go.npz"), lessons, 1) == pytest.approx(card["score"], abs=1e-6)
    assert card["score"] == found.card["score"]
    rows = [json.loads(line) for line in (tmp_path / "logs" / "log.jsonl").read_text().splitlines()]
    assert [row["kind"] for row in rows] == ["update", "evaluation"] * 2


def test_a_family_that_is_held_out_is_not_learnt_on() -> None:
    training = GoTraining(["rnnlm"], SMALL, held_out=["gnmt"])
    assert {one.title.split()[0] for one in training.lessons} == {"rnnlm"}
    assert {one.title.split()[0] for one in training.judged_on} == {"gnmt"}


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: GoTraining([], SMALL), "no family"),
        (lambda: GoTraining(["vgg"], SMALL), "vgg"),
        (lambda: GoTraining(["rnnlm"], SMALL, tasks=["sorting"]), "sorting"),
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
        for name in ("hidden", "heads", "segment", "samples", "pool", "smallest", "largest")
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
        ({}, "GO needs a policy", UsageError),
        ({"evaluations": 0}, "at least 1", UsageError),
        ({"steps": -1}, "0 steps", UsageError),
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
