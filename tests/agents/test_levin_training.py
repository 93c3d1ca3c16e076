"""Levin tree search: what its policy learns from, its training, and the file that it makes."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rlflow import search
from rlflow.agents.chain_lessons.chain_fit import Decisions, fitted
from rlflow.agents.chain_lessons.chain_training import LevinTraining
from rlflow.cli import main
from rlflow.errors import ModelError, UsageError
from rlflow.search import StopToken
from rlflow.search.levin.chain_policy import ChainPolicy, ChainShape, by_hand
from rlflow.search.levin.chains import ChainStep, Paid
from rlflow.search.levin.trained import SHIPPED, LevinCheckpoint, LevinConfig, load_chains
from rlflow.testing import TinyProblem
from tests.search.test_levin import BY_NAME, FAMILIES, expansions, seen

# --- the fit ----------------------------------------------------------------------------------------------------------


def paid(*taken: tuple[tuple[int, ...], list[int], int]) -> Paid:
    """A chain of steps, each by the rules before, the candidates and which one was taken."""
    step: ChainStep | None = None
    for rules, candidates, one in taken:
        step = ChainStep(step, seen(rules, candidates, [0.0] * len(candidates)), one)
    assert step is not None
    return Paid(tuple(candidates[one] for _, candidates, one in taken), step, 0.01, 5)


def test_of_chains_of_the_same_rules_a_few_are_learnt_from() -> None:
    once, twice = paid(((), [0, 1], 1)), paid(((), [0, 1, 2], 0), ((0,), [2, 3], 1))
    found = Decisions()
    assert found.learn_from([twice, once, twice, twice], 2) == 3
    assert [(one.last, taken, len(one)) for one, taken in found.steps] == [
        (-1, 0, 3), (0, 1, 2), (-1, 1, 2), (-1, 0, 3), (0, 1, 2)
    ]  # fmt: skip
    assert found.learn_from([once], 2) == 1  # another search


def test_decisions_come_back_from_a_file() -> None:
    found = Decisions()
    found.learn_from([paid(((), [0, 1, 2], 0), ((0,), [2, 3], 1)), paid(((), [4], 0))], 1)
    again = Decisions.of(found.arrays())
    assert len(again) == len(found) == 3
    for (one, taken), (other, retaken) in zip(found.steps, again.steps, strict=True):
        assert taken == retaken and (one.last, one.before) == (other.last, other.before)
        assert all(np.array_equal(a, b) for a, b in zip(one[2:], other[2:], strict=True))
    assert len(Decisions.of(Decisions().arrays())) == 0


def loss(policy: ChainPolicy, steps: list[Any], decay: float) -> float:
    chances = [policy.log_probabilities(one, 1e-12)[taken] for one, taken in steps]
    return -float(np.mean(chances)) + decay / len(steps) * float(np.sum((policy.flat - by_hand(policy.shape)) ** 2))


def test_the_fit_is_a_minimum() -> None:
    found = Decisions()
    found.learn_from(
        [
            paid(((), [0, 1, 2], 0), ((0,), [1, 3, 4], 2)),
            paid(((), [0, 2], 0), ((0,), [3, 4], 0)),
            paid(((), [3, 1], 1)),
        ],
        1,
    )
    config = LevinConfig(passes=3000, lr=0.02, decay=0.05)
    shape = ChainShape(5, 2)
    begin = ChainPolicy(shape, FAMILIES, by_hand(shape))
    policy, nats = fitted(begin, found.steps, config)
    assert nats == pytest.approx(loss(policy, found.steps, 0.0), abs=1e-4)
    best = loss(policy, found.steps, config.decay)
    assert best < loss(begin, found.steps, config.decay) - 0.1
    rng = np.random.default_rng(0)
    for place in [*rng.choice(np.flatnonzero(policy.flat), 30), *rng.choice(shape.size, 10)]:
        for by in (-0.03, 0.03):
            moved = policy.flat.copy()
            moved[place] += by
            assert loss(ChainPolicy(shape, FAMILIES, moved), found.steps, config.decay) > best
    assert fitted(begin, [], config) == (begin, 0.0)


# --- the rounds -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Lesson:
    """A tiny problem as something to learn on."""

    tiny: TinyProblem

    @property
    def title(self) -> str:
        return self.tiny.name

    def load(self) -> Lesson:
        return self

    @property
    def ruleset(self) -> Any:
        return self.tiny.ruleset()

    def problem(self, budget: str, **options: Any) -> Any:
        return self.tiny.problem(budget, **options)


SMALL = LevinConfig(expansions=200, passes=50)
LESSONS = [Lesson(BY_NAME["plateau"]), Lesson(BY_NAME["plateau"])]


def test_training_learns_the_chain_and_makes_the_same_file(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    first = LevinTraining(LESSONS, SMALL, out=tmp_path / "a.npz", logs=tmp_path / "logs")
    card = first.train(2, on_lesson=told.append).card
    LevinTraining(LESSONS, SMALL, out=tmp_path / "b.npz").train(2)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert card["rounds"] == 2 and card["chains"] > 0 and len(card["scores"]) == 2
    assert [one["round"] for one in told] == [0, 0, 1, 1]
    assert card["expansions"] == sum(one["expansions"] for one in told)
    lines = [json.loads(line) for line in (tmp_path / "logs" / "log.jsonl").read_text().splitlines()]
    assert [line["chains"] for line in lines] == [one["chains"] for one in told]
    problem = BY_NAME["plateau"].problem()
    policy, names = load_chains(tmp_path / "a.npz")
    learnt, _ = expansions(BY_NAME["plateau"], policy.bound(names, problem.rule_names))
    fresh, _ = expansions(BY_NAME["plateau"], ChainPolicy(policy.shape, policy.families, np.zeros(policy.shape.size)))
    assert learnt <= fresh
    assert first.progress.loss < math.log(2)


class _StopAfter(StopToken):
    """A stop token that is set when so many lessons are over."""

    def __init__(self, lessons: int) -> None:
        super().__init__()
        self.left = lessons

    def count(self, _: dict[str, Any]) -> None:
        self.left -= 1
        if self.left <= 0:
            self.stop()


@pytest.mark.parametrize("lessons", [1, 2, 3])
def test_a_training_that_was_stopped_goes_on_to_the_same_end(tmp_path: Path, lessons: int) -> None:
    whole, parts = tmp_path / "whole.npz", tmp_path / "parts.npz"
    LevinTraining(LESSONS, SMALL, out=whole).train(2)
    stop = _StopAfter(lessons)
    LevinTraining(LESSONS, SMALL, out=parts).train(2, on_lesson=stop.count, stop=stop)
    assert parts.read_bytes() != whole.read_bytes()
    LevinTraining(LESSONS, SMALL, out=parts, resume=True).train(2)
    assert parts.read_bytes() == whole.read_bytes()


class _CutShort(Lesson):
    """A lesson that is stopped from outside when it has opened a few graphs."""

    def problem(self, budget: str, **options: Any) -> Any:
        made = super().problem(budget, **options)
        opened = itertools.count(1)
        made.observer = SimpleNamespace(
            enumerated=lambda table: None, opened=lambda *_: options["stop"].stop() if next(opened) == 3 else None
        )
        return made


def test_a_lesson_that_was_cut_short_is_not_learnt_from(tmp_path: Path) -> None:
    training = LevinTraining([_CutShort(BY_NAME["plateau"])], SMALL, out=tmp_path / "a.npz")
    told: list[dict[str, Any]] = []
    card = training.train(2, on_lesson=told.append, stop=StopToken()).card
    assert card["chains"] == card["rounds"] == card["expansions"] == 0 and not told


def test_resuming_another_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give one with out"):
        LevinTraining(LESSONS, SMALL, resume=True)
    LevinTraining(LESSONS, SMALL, out=tmp_path / "a.npz").train(1)
    with pytest.raises(UsageError, match="other models, seed or options"):
        LevinTraining(LESSONS[:1], SMALL, out=tmp_path / "a.npz", resume=True)
    with pytest.raises(UsageError, match="no model"):
        LevinTraining([], SMALL)


@pytest.mark.parametrize(
    ("name", "text"), [("expansions", "0"), ("even", "0"), ("even", "2"), ("decay", "-1"), ("lr", "0"), ("passes", "0")]
)
def test_training_options_out_of_range(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' is .*out of range"):
        LevinConfig().with_options({name: text})


def test_a_training_from_the_command_line_is_resumed(tmp_path: Path) -> None:
    out = tmp_path / "mine.npz"
    words = ["train", "levin", "--models", "squeezenet1.1", "--out", str(out), "--set", "expansions=40", "-q"]
    done = CliRunner().invoke(main, [*words, "--rounds", "1"])
    assert done.exit_code == 0, done.output
    assert "Trained: 1 rounds, 40 graphs opened" in done.output
    again = CliRunner().invoke(main, [*words, "--rounds", "2", "--resume"])
    assert again.exit_code == 0 and "Trained: 2 rounds, 80 graphs opened" in again.output
    assert search.solve(BY_NAME["plateau"].problem(), f"levin:checkpoint={out}").cost_after_ms > 0


# --- files ------------------------------------------------------------------------------------------------------------


def test_the_policy_that_ships_knows_the_library() -> None:
    from rlflow.synthesis import load_rules

    policy, names = load_chains()
    assert set(names) == {rule.name for rule in load_rules().values()}
    assert np.isfinite(policy.flat).all() and np.count_nonzero(policy.flat) > 100
    card = LevinCheckpoint.load(SHIPPED).card
    assert card["chains"] > 0 and "seconds" not in card


@pytest.mark.parametrize("broken", ["shape", "families", "lacking"])
def test_weights_that_do_not_fit_are_a_sentence(tmp_path: Path, broken: str) -> None:
    checkpoint = LevinCheckpoint.load(SHIPPED)
    if broken == "shape":
        checkpoint.weights["after"] = checkpoint.weights["after"][1:]
    elif broken == "families":
        checkpoint.config = dataclasses.replace(checkpoint.config, families=checkpoint.config.families[1:])
    else:
        del checkpoint.weights["place"]
    checkpoint.save(tmp_path / "broken.npz")
    with pytest.raises(ModelError, match="do not fit"):
        search.require_ready(search.make(f"levin:checkpoint={tmp_path / 'broken.npz'}"))


def test_no_file_and_another_agents() -> None:
    with pytest.raises(ModelError, match="rlflow train levin"):
        search.require_ready(search.make("levin:checkpoint=none.npz"))
    with pytest.raises(ModelError, match="expected a policy of chains"):
        search.require_ready(search.make(f"levin:checkpoint={SHIPPED.with_name('xrlflow.npz')}"))
