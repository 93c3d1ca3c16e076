"""The Gymnasium environment: its contract, its states, its views."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest
from worlds import BY_NAME, needs_gymnasium, tiny_spec, tiny_world

from rlflow import env
from rlflow.errors import UsageError
from rlflow.search import TraceStep, replay

pytestmark = needs_gymnasium

# The way down the valley: split the Relu over the Concat (dearer), then drop what the Slice does not read.
VALLEY = ["relu-of-concat", "slice-of-concat"]


def walk(world: Any, rules: list[str]) -> list[float]:
    """Take the first candidate of each named rule; the rewards."""
    rewards = []
    for rule in rules:
        moves = [world.move(action) for action in range(1, world.episode.candidates)]
        rewards.append(world.step(1 + [move.rule for move in moves].index(rule))[1])
    return rewards


@pytest.mark.parametrize("observation", ["ragged", "graph", "candidates", "globals", "cost", "counts"])
def test_gymnasiums_checker_is_content(observation: str) -> None:
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*alternative render modes.*")  # there is one mode, given to make()
        check_env(tiny_world("plateau", observation=observation), skip_render_check=True)


def test_gymnasiums_registry_makes_both_forms() -> None:
    import gymnasium

    tiny = BY_NAME["twins"]
    options = {"models": tiny.graph(), "rules": tiny.rules, "cost_options": tiny.cost}
    with gymnasium.make("rlflow/Rewrite-v0", **options) as world:
        seen, _ = world.reset(seed=0)
        assert seen in world.observation_space
    sizes = {"nodes": 32, "edges": 32, "candidates": 8, "touched": 4}
    vector = gymnasium.make_vec(
        "rlflow/PaddedRewrite-v0", num_envs=2, vectorization_mode="sync", sizes=sizes, **options
    )
    seen, _ = vector.reset(seed=0)
    assert seen["action_mask"].shape == (2, 8)
    seen, rewards, *_ = vector.step(np.array([1, 0]))
    assert rewards[0] > 0 == rewards[1]


@pytest.mark.parametrize("action", [99, -1, 1.5, "all", None])
def test_an_action_that_is_none_is_a_sentence(action: Any) -> None:
    world = tiny_world("twins")
    world.reset()
    with pytest.raises(UsageError, match="expected 0 to stop"):
        world.step(action)
    assert world.episode.steps == 0
    world.step(1)  # nothing is broken


def test_the_end_has_two_kinds() -> None:
    world = tiny_world("twins", horizon=2)
    world.reset()
    assert world.step(0)[2:4] == (True, False)  # stop
    with pytest.raises(UsageError, match="ended"):
        world.step(0)
    world.reset()
    assert world.step(1)[2:4] == (False, False)
    assert world.step(1)[2:4] == (False, True)  # the horizon
    world = tiny_world("merge")
    world.reset()
    assert world.step(1)[2:4] == (True, False)  # nothing left to do


def test_what_cannot_be_made_is_a_sentence() -> None:
    for make, words in [
        (lambda: env.make("bert-bas"), "bert-base"),
        (lambda: env.make("squeezenet1.1", horizon=0), "horizon is 0"),
        (lambda: env.make([]), "without a model"),
        (lambda: env.make("squeezenet1.1", reward="speed"), "no reward 'speed'"),
        (lambda: env.make("squeezenet1.1", observation="pixels"), "no observation 'pixels'"),
        (lambda: tiny_world("twins", reward="end-to-end"), "no weights"),
    ]:
        with pytest.raises(UsageError, match=words):
            make().reset()
    with pytest.raises(UsageError, match=r"call reset\(\) first"):
        tiny_world("twins").step(0)


def test_an_action_is_a_rule_and_a_match_and_back() -> None:
    world = tiny_world("exclusive")
    world.reset()
    for action in range(world.episode.candidates):
        assert world.action(world.move(action)) == action
    assert world.move(0) is None
    with pytest.raises(UsageError, match="does not apply"):
        world.action(TraceStep("merge-products", (98, 99)))


def test_a_fork_goes_its_own_way() -> None:
    world = tiny_world("valley")
    world.reset(seed=3)
    walk(world, VALLEY[:1])
    twin = world.fork()
    gained = walk(twin, VALLEY[1:])
    assert gained[0] > 0
    assert (world.episode.steps, twin.episode.steps) == (1, 2)
    assert world.state != twin.state
    assert world.observation["digest"] != twin.observation["digest"]
    assert walk(world, VALLEY[1:]) == gained
    assert world.state == twin.state


def test_a_state_replays_here_and_in_another_process() -> None:
    world = tiny_world("valley")
    world.reset()
    walk(world, VALLEY)
    tiny, state = BY_NAME["valley"], world.state
    again = env.RewriteState.from_json(state.to_json())
    assert again == state
    assert replay(tiny.graph(), tiny.ruleset(), state.trace).digest == state.digest
    other = tiny_world("valley")
    other.reset(options={"state": again})
    assert other.observation["digest"] == world.observation["digest"]
    assert other.episode.total == pytest.approx(world.episode.total)
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\nfrom worlds import tiny_world\nfrom rlflow.env import RewriteState\n"
        "world = tiny_world('valley'); world.reset(options={'state': RewriteState.from_json(sys.argv[1])})\n"
        "print(world.observation['digest'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, state.to_json(), *sys.path],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == state.digest, done.stderr


def test_a_state_of_elsewhere_is_refused() -> None:
    world = tiny_world("valley")
    world.reset()
    walk(world, VALLEY)
    wrong = json.loads(world.state.to_json()) | {"digest": "0" * 32}
    with pytest.raises(UsageError, match="another model, or with other rules"):
        world.reset(options={"state": env.RewriteState.from_json(json.dumps(wrong))})
    with pytest.raises(UsageError, match="cannot be read"):
        env.RewriteState.from_json("nonsense")


def test_views_are_named_lazy_and_of_their_space() -> None:
    from rlflow.env.observations import VIEWS

    world = tiny_world("exclusive")
    world.reset()
    assert list(world.observation) == list(VIEWS)
    for name, view in VIEWS.items():
        assert world.observation[name] in view.space(), name
    assert world.observation["text"] is world.observation["text"]
    before = world.observation["digest"]
    world.step(1)
    assert world.observation["digest"] != before


def test_observations_are_the_same_for_a_seed_and_do_not_share_arrays() -> None:
    world = tiny_world("exclusive")
    first, _ = world.reset(seed=5)
    second, _ = world.reset(seed=5)
    for name in ("candidates", "touched", "globals"):
        np.testing.assert_array_equal(first[name], second[name])
        assert not np.shares_memory(first[name], second[name])


def test_several_models_are_drawn_by_seed_or_chosen() -> None:
    tinies = [BY_NAME["twins"], BY_NAME["plateau"]]
    world = env.make([tiny.graph() for tiny in tinies], tinies[0].rules + tinies[1].rules, cost_options=tinies[0].cost)
    drawn = [world.reset(seed=seed)[1]["model"] for seed in range(8)]
    assert set(drawn) == {0, 1}
    assert drawn == [world.reset(seed=seed)[1]["model"] for seed in range(8)]
    assert world.reset(options={"model": 1})[1]["model"] == 1
    with pytest.raises(UsageError, match="no model number 2"):
        world.reset(options={"model": 2})


def test_the_vector_form_steps_each_and_begins_again() -> None:
    from rlflow.env import RewriteVectorEnv

    worlds = RewriteVectorEnv([tiny_world("twins"), tiny_world("plateau")])
    seen, _ = worlds.reset(seed=0)
    assert len(seen) == 2
    _, rewards, terminated, _, infos = worlds.step([1, 0])
    assert rewards[0] > 0
    assert terminated.tolist() == [False, True]
    assert infos["steps"].tolist() == [1, 0]
    _, rewards, terminated, _, infos = worlds.step([1, 1])
    assert rewards[1] == 0  # a new episode began; its action was ignored
    assert infos["steps"].tolist() == [2, 0]
    with pytest.raises(UsageError, match="one each"):
        worlds.step([1])


def test_a_small_padding_keeps_the_best_and_says_what_it_cut() -> None:
    from rlflow.env import Padded

    world = Padded(tiny_world("exclusive"), nodes=6, edges=4, candidates=3, touched=1)
    seen, info = world.reset()
    everything = world.unwrapped.episode.observe()
    assert seen in world.observation_space
    assert info["cut"] == everything.candidates - 3 > 0
    assert info["cut_nodes"] == max(0, len(everything.graph.op) - 6)
    kept = sorted(seen["candidates"][1:3, 1].tolist())
    np.testing.assert_allclose(kept, np.sort(everything.delta[1:, 0])[-2:])
    assert seen["action_mask"].tolist() == [1, 1, 1]


def test_a_masked_action_changes_nothing_but_the_clock() -> None:
    from rlflow.env import Padded

    world = Padded(tiny_world("twins", horizon=3), nodes=32, edges=32, candidates=16)
    seen, _ = world.reset()
    assert seen["action_mask"].sum() == world.unwrapped.episode.candidates
    after, reward, terminated, truncated, info = world.step(15)
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert "masked" in info["invalid"]
    np.testing.assert_array_equal(seen["nodes"], after["nodes"])
    world.step(15)
    assert world.step(15)[3]


def test_specifications_travel() -> None:
    import pickle

    spec = pickle.loads(pickle.dumps(tiny_spec("valley")))
    assert spec == tiny_spec("valley")
    assert spec.load().problem("5x").root().digest == BY_NAME["valley"].problem("5x").root().digest
