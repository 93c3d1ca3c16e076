"""The agent learns, resumes, and says what it did."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policies import SMALL, needs_torch, observations, small_policy
from worlds import BY_NAME, tiny_spec

from rlflow import search
from rlflow.errors import ModelError, OutputError, UsageError
from rlflow.search import StopToken
from rlflow.testing import optimum

pytestmark = needs_torch
torch = pytest.importorskip("torch", reason="torch is not installed; pip install 'rlflow[rl]'")

ROOT = Path(__file__).resolve().parents[2]


def config(**options: Any) -> Any:
    from rlflow.agents.xrlflow.config import TrainConfig
    from rlflow.nn.policy_config import PolicyConfig

    policy = PolicyConfig(**SMALL, **options.pop("policy", {}))
    return TrainConfig(**{"horizon": 8, "lr": 3e-3, "minibatch": 32, "policy": policy, **options})


def trainer(names: tuple[str, ...] = ("valley",), options: dict | None = None, **more: Any) -> Any:
    from rlflow.agents.xrlflow.ppo import Trainer

    return Trainer([tiny_spec(name) for name in names], config(**(options or {})), **{"evaluate_every": 5, **more})


def same(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(one[name], two[name]) for name in one)


def test_a_step_that_costs_more_first_is_learnt_and_greedy_never_finds_it(tmp_path: Path) -> None:
    tiny = BY_NAME["valley"]
    best = optimum(tiny).cost_ms
    agent = trainer(out=tmp_path / "agent.npz")
    agent.train(250)
    assert search.solve(tiny.problem(), "greedy").cost_after_ms > best * 1.01
    found = search.solve(tiny.problem(), f"xrlflow:checkpoint={tmp_path / 'agent.npz'},decode=greedy,descent=no")
    assert found.cost_after_ms == pytest.approx(best)
    assert found.counts.expansions <= 4


def test_the_meta_graph_form_learns_too() -> None:
    agent = trainer(options={"policy": {"encoder": "meta-graph"}})
    agent.train(250)
    start = BY_NAME["valley"].problem("1x").root().cost
    assert agent.progress.best_score == pytest.approx(math.log(start / optimum(BY_NAME["valley"]).cost_ms))


def test_the_same_seed_gives_the_same_weights_and_file(tmp_path: Path) -> None:
    weights = []
    for name in ("a.npz", "b.npz"):
        agent = trainer(("valley", "exclusive"), out=tmp_path / name, seed=5)
        weights.append(agent.train(60).weights)
    assert same(*weights)
    assert not same(weights[0], trainer(("valley", "exclusive"), seed=6).train(60).weights)


def test_a_resumed_training_is_the_training_that_never_stopped(tmp_path: Path) -> None:
    whole = trainer(out=tmp_path / "whole.npz")
    whole.train(120)
    half = trainer(out=tmp_path / "half.npz")
    stop = StopToken()
    half.train(120, on_update=lambda figures: stop.stop() if figures["update"] == 3 else None, stop=stop)
    assert half.progress.updates == 3
    again = trainer(out=tmp_path / "half.npz", resume=True)
    assert again.progress.updates == 3
    again.train(120)
    from rlflow.agents.torch_state import weights_of

    assert again.progress.steps == whole.progress.steps
    assert same(weights_of(again.policy), weights_of(whole.policy))


def test_a_resumed_training_has_to_be_the_same(tmp_path: Path) -> None:
    trainer(out=tmp_path / "a.npz").train(20)
    with pytest.raises(UsageError, match="other models, seed or options"):
        trainer(out=tmp_path / "a.npz", seed=1, resume=True)
    with pytest.raises(ModelError, match="no checkpoint"):
        trainer(out=tmp_path / "b.npz", resume=True)


@pytest.mark.slow  # each process opens torch
def test_processes_play_what_one_plays() -> None:
    """Each episode has its own generator, so that it does not matter who plays it."""
    from rlflow.agents.torch_state import weights_of
    from rlflow.agents.xrlflow.players import Task, make_players
    from rlflow.agents.xrlflow.ppo import Player
    from rlflow.nn.token_vocabulary import TokenVocabulary

    specs, tasks = [tiny_spec("valley"), tiny_spec("exclusive")], [Task(i % 2, 100 + i) for i in range(5)]
    vocabulary = TokenVocabulary.of(["merge-products", "relu-of-concat"])
    from rlflow.nn.policy import make_policy

    weights = weights_of(make_policy(config().policy, vocabulary, 0))
    make = partial(Player, specs, config(), vocabulary)
    here = make().play(weights, tasks)
    players = make_players("2", make)
    try:
        there = players.play(weights, tasks)
    finally:
        players.close()
    assert [one.actions for one in here] == [one.actions for one in there]
    assert [one.rewards for one in here] == [one.rewards for one in there]


def test_ray_is_asked_for_in_a_sentence_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlflow.crew.workers.not_installed", lambda *_: "Ray is missing: pip install 'rlflow[ray]'")
    with pytest.raises(UsageError, match=r"rlflow\[ray\]"):
        trainer(workers="ray").train(10)
    with pytest.raises(UsageError, match="expected a whole number"):
        trainer(workers="many").train(10)


def test_a_truncated_episode_is_not_a_terminated_one() -> None:
    from rlflow.agents.xrlflow.players import Trajectory
    from rlflow.agents.xrlflow.ppo import prepare
    from rlflow.agents.xrlflow.training import Scales

    def one(terminated: bool) -> Trajectory:
        seen = observations()[:2]
        return Trajectory(0, seen, [1, 1], [0.0, 0.0], [0.5, 0.5], [0.0, 1.0], 3.0, terminated)

    options = config(gamma=0.9, lam=1.0)
    ended, cut = (prepare([one(end)], Scales(), options).returns for end in (True, False))
    np.testing.assert_allclose(ended, [0.9, 1.0], rtol=1e-6)
    np.testing.assert_allclose(cut, [0.9 + 0.81 * 3, 1.0 + 0.9 * 3], rtol=1e-6)


def test_returns_are_in_units_of_their_model() -> None:
    from rlflow.agents.xrlflow.players import Trajectory
    from rlflow.agents.xrlflow.ppo import prepare
    from rlflow.agents.xrlflow.training import Scales

    scales = Scales()
    for total in (3.0, 4.0, 5.0):
        scales.add(0, total)
    scales.add(1, 0.0)
    assert scales.of(0) == pytest.approx(math.sqrt(50 / 3))
    assert scales.of(1) == scales.of(2) == 1.0
    one = Trajectory(0, observations()[:1], [1], [0.0], [0.0], [8.0], 0.0, True)
    assert prepare([one], scales, config()).returns[0] == pytest.approx(8 / scales.of(0))


def test_an_update_ends_early_once_the_policy_has_moved_far() -> None:
    from rlflow.agents.xrlflow.players import Trajectory
    from rlflow.agents.xrlflow.ppo import improve, prepare
    from rlflow.agents.xrlflow.training import Scales
    from rlflow.search import generator

    seen = observations()
    one = Trajectory(0, seen, [1] * len(seen), [-1.0] * len(seen), [0.0] * len(seen), [1.0] * len(seen), 0.0, True)
    options = config(epochs=6, target_kl=1e-6, lr=0.05)
    for watch, epochs in ((True, 1), (False, 6)):
        policy = small_policy()
        optimizer = torch.optim.Adam(policy.parameters(), lr=options.lr)
        sample = prepare([one], Scales(), options)
        assert improve(policy, optimizer, sample, options, generator(0), watch_kl=watch)["epochs"] == epochs


def test_a_step_along_the_gradient_makes_a_good_action_likelier() -> None:
    from rlflow.agents.xrlflow.players import Trajectory
    from rlflow.agents.xrlflow.ppo import improve, prepare
    from rlflow.agents.xrlflow.training import Scales
    from rlflow.nn.batch import Batch
    from rlflow.search import generator

    policy, seen = small_policy(), observations(("plateau",))[1:] * 8
    batch = Batch.of(seen, policy.vocabulary.op_rows)
    with torch.no_grad():
        before = policy(batch)[0].log_probs[:3].exp()
    played = [
        Trajectory(0, [seen[0]], [action], [float(before[action].log())], [0.0], [float(action == 1)], 0.0, True)
        for action in (0, 1, 2, 1)
    ]
    options = config(lr=1e-2, lam=1.0, epochs=20)
    improve(policy, torch.optim.Adam(policy.parameters(), lr=1e-2), prepare(played, Scales(), options), options,
            generator(0), watch_kl=False)  # fmt: skip
    with torch.no_grad():
        after = policy(batch)[0].log_probs[:3].exp()
    assert after[1] > before[1] + 0.02
    assert (after[[0, 2]] < before[[0, 2]]).all()


def test_every_figure_of_the_logs_is_defined(tmp_path: Path) -> None:
    agent = trainer(logs=tmp_path / "logs", out=tmp_path / "agent.npz", evaluate_every=1)
    agent.train(20)
    rows = [json.loads(line) for line in (tmp_path / "logs" / "log.jsonl").read_text().splitlines()]
    assert {row["kind"] for row in rows} == {"update", "evaluation"}
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    undefined = sorted({name for row in rows for name in row if f"`{name}`" not in page})
    assert not undefined
    import importlib.util

    if importlib.util.find_spec("tensorboard") is not None:
        assert list((tmp_path / "logs").glob("events.*"))


def test_patience_ends_a_training_that_gets_no_better() -> None:
    agent = trainer(("nothing",), options={"horizon": 2}, evaluate_every=1, patience=3)
    agent.train(10_000)
    assert agent.progress.updates == 4  # the first evaluation is the best, three are no better


@pytest.mark.parametrize("steps", [0, 60])
def test_what_training_starts_from_is_kept_where_nothing_is_better(steps: int) -> None:
    learnt = trainer().train(250)
    harmful = {"lr": 1.0, "clip": 10.0, "target_kl": 1e6, "grad_norm": 1e6}  # forgets at once what it knew
    after = trainer(options=harmful, start=learnt, evaluate_every=1).train(steps)
    assert after.card["score"] == pytest.approx(learnt.card["score"])
    assert same(after.weights, learnt.weights)


def test_a_checkpoint_holds_its_configuration_and_runs_no_code(tmp_path: Path) -> None:
    from rlflow.agents.xrlflow.trained import PolicyCheckpoint

    path = tmp_path / "agent.npz"
    trainer(out=path, options={"policy": {"message": "mean"}}).train(10)
    found = PolicyCheckpoint.load(path)
    assert found.config.policy.message == "mean"
    assert found.card["models"] == [tiny_spec("valley").title]
    assert found.card["steps"] >= 10
    again = tmp_path / "again.npz"
    found.save(again)
    assert again.read_bytes() == path.read_bytes()
    for text, words in ((b"PK nonsense", "is not a checkpoint"), (b"", "is not a checkpoint")):
        path.write_bytes(text)
        with pytest.raises(ModelError, match=words):
            PolicyCheckpoint.load(path)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot be written"):
        found.save(tmp_path / "file" / "agent.npz")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": "fast"}, "expected a number"),
        ({"speed": "1"}, "no training option 'speed'"),
        ({"policy.hidden": "x"}, "policy.hidden"),
        ({"policy": "big"}, "no training option 'policy'"),
        ({"gamma": "2"}, "out of range"),
        ({"epochs": "0"}, "out of range"),
    ],
)
def test_options_that_make_no_sense_are_sentences(options: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        config().with_options(options)


def test_options_are_read() -> None:
    found = config().with_options({"lr": "1e-2", "anneal": "yes", "policy.layers": "3"})
    assert (found.lr, found.anneal, found.policy.layers, found.policy.hidden) == (0.01, True, 3, SMALL["hidden"])


def test_presets_are_the_papers_and_ours() -> None:
    from rlflow.agents.xrlflow.config import preset

    paper = preset("paper")
    figures = (paper.lr, paper.gamma, paper.lam, paper.clip, paper.epochs, paper.minibatch, paper.episodes)
    assert figures == (5e-4, 0.99, 0.95, 0.2, 4, 16, 10)
    assert preset("tuned").policy.prior > 0
    with pytest.raises(UsageError, match="paper, tuned, taught"):
        preset("best")
