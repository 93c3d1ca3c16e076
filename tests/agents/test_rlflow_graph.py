"""The graph form: what it is worth to open, and that looking ahead opens nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from policies import needs_torch
from worlds import BY_NAME, tiny_spec

from rlflow import search
from rlflow.search import Problem, generator
from rlflow.testing import TINY, optimum

pytestmark = needs_torch
torch = pytest.importorskip("torch", reason="torch is not installed; pip install 'rlflow[rl]'")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from rlflow.agents.rlflow.config import preset
    from rlflow.agents.rlflow.train import WorldTrainer

    torch.set_num_threads(1)
    small = {
        "horizon": "8",
        "encoder_hidden": "16",
        "random_episodes": "4",
        "fit_steps": "60",
        "batch": "8",
        "opens": "8",
    }
    out = tmp_path_factory.mktemp("graph") / "agent.npz"
    agent = WorldTrainer([tiny_spec("plateau")], preset("graph").with_options(small), out=out)
    agent.train(1000, rounds=2)
    return agent


def test_two_steps_that_change_nothing_are_taken_for_the_one_that_pays(trained: Any) -> None:
    known = optimum(BY_NAME["plateau"])
    greedy = search.solve(BY_NAME["plateau"].problem(), "greedy")
    assert greedy.cost_after_ms > known.cost_ms * 1.01
    found = search.solve(BY_NAME["plateau"].problem("8x"), f"rlflow:checkpoint={trained.out},descent=no,share=1")
    assert found.cost_after_ms == pytest.approx(known.cost_ms)


def test_known_values_are_the_closed_form(trained: Any) -> None:
    """Where all graphs are opened, the value of the start without discount is the whole gain."""
    from rlflow.agents.rlflow.graph_agent import known_values

    replay = trained.replay
    known, fresh = known_values(replay, 1.0), known_values(replay, 0.5)
    roots = [key for key, state in replay.states.items() if state.root]
    best = max(state.gain for state in replay.states.values())
    for key in roots:
        assert known.value[key] >= best - 1e-9
        assert fresh.value[key] <= known.value[key] + 1e-12
    for key, state in replay.states.items():
        child = [replay.states.get(state.child(k)) for k in range(len(state.costs))]
        assert known.opened[key].tolist() == [one is not None for one in child]
        assert known.value[key] == pytest.approx(max([0.0, *known.worth[key].tolist()]))


def test_looking_ahead_opens_nothing(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlflow.agents.rlflow.ranked import Ranker

    state = next(state for state in trained.replay.states.values() if state.root)
    ranker = Ranker(trained.agent.world, trained.agent.rows(0), 4, 3, 0.9)

    def refuse(*given: Any, **options: Any) -> Any:
        raise AssertionError("the engine was asked")

    for name in ("root", "moves", "open"):
        monkeypatch.setattr(Problem, name, refuse)
    assert len(ranker.ranks(state.seen)) == len(state.costs)
    dreamt = ranker.dream(state.seen, 5)
    assert 1 <= len(dreamt) <= 5
    assert len({step.candidate for step in dreamt}) == len(dreamt)


def test_dreams_side_by_side_are_the_dreams_alone(trained: Any) -> None:
    from rlflow.agents.rlflow.ranked import Ranker
    from rlflow.nn.batch import Batch

    world, state = trained.agent.world, max(trained.replay.states.values(), key=lambda one: len(one.costs))
    ranker = Ranker(world, trained.agent.rows(0), 4, 3, 0.9)
    seen = [world.vocabulary.translate(state.seen, ranker.rows)]
    with torch.no_grad():
        nodes = world.encode(Batch.of(seen, world.vocabulary.op_rows))
        firsts = list(range(len(state.costs)))
        together = ranker.rollouts(state.seen, nodes, firsts, 3)
        alone = [ranker.rollouts(state.seen, nodes, [k], 3)[0] for k in firsts]
    for one, two in zip(together, alone, strict=True):
        assert [step.candidate for step in one] == [step.candidate for step in two]
        np.testing.assert_allclose([step.change for step in one], [step.change for step in two], rtol=1e-4, atol=1e-6)


def test_overlaps_are_shares_of_touched_nodes(trained: Any) -> None:
    from rlflow.agents.rlflow.ranked import overlaps

    for state in trained.replay.states.values():
        seen, found = state.seen, overlaps(state.seen)
        touched = [set(seen.touched[seen.touched_by == k].tolist()) for k in range(seen.candidates)]
        for i, one in enumerate(touched):
            for j, other in enumerate(touched):
                assert float(found[i, j]) == pytest.approx(len(one & other) / max(1, len(other)))


def test_the_gradient_reaches_the_encoder(trained: Any) -> None:
    from rlflow.agents.rlflow.graph_agent import known_values

    agent = trained.agent
    keys = [key for key, state in trained.replay.states.items() if len(state.costs)][:6]
    terms = agent.losses(keys, known_values(trained.replay, 0.9), generator(0))
    for name in ("future_loss", "value_loss", "latent_loss"):
        agent.optimizer.zero_grad(set_to_none=True)
        terms[name].backward(retain_graph=True)
        reached = [p.grad is not None and bool(p.grad.abs().sum() > 0) for p in agent.world.graph.layers.parameters()]
        assert np.mean(reached) > 0.9, name


def test_a_dream_is_watched_beside_the_engine(trained: Any, tmp_path: Any) -> None:
    from click.testing import CliRunner

    from rlflow.cli import main

    out = tmp_path / "dream.json"
    done = CliRunner().invoke(
        main, ["dream", "nasrnn?seq=2", "--checkpoint", str(trained.out), "--steps", "3", "--json", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert "The dream ended" in done.output
    import json

    steps = json.loads(out.read_text())["steps"]
    assert 1 <= len(steps) <= 3
    assert steps[0]["real"] is not None


def test_training_and_dreaming_from_the_command_line(tmp_path: Any) -> None:
    from click.testing import CliRunner

    from rlflow.cli import main

    out, plot = tmp_path / "agent.npz", tmp_path / "dream.png"
    small = ["hidden=16", "latent=4", "encoder_hidden=8", "fit_steps=2", "dream_updates=1", "random_episodes=1",
             "downhill_episodes=1", "episodes=1", "horizon=4"]  # fmt: skip
    arguments = ["train", "worldmodel", "--models", "nasrnn?seq=2", "--expansions", "12", "--out", str(out), "--quiet"]
    done = CliRunner().invoke(main, [*arguments, *(part for one in small for part in ("--set", one))])
    assert done.exit_code == 0, done.output
    assert "12 real expansions" in done.output or "real expansions" in done.output
    shown = CliRunner().invoke(
        main, ["dream", "nasrnn?seq=2", "--checkpoint", str(out), "--plot", str(plot), "--steps", "4"]
    )
    assert shown.exit_code == 0, shown.output
    import importlib.util

    assert plot.exists() or importlib.util.find_spec("matplotlib") is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "worldmodel", "--models", "nasrnn", "--preset", "best"], "no preset 'best' for world models"),
        (["train", "worldmodel", "--models", "nasrnn", "--set", "reward=luck"], "expected improvement"),
        (["dream", "nasrnn", "--checkpoint", "nowhere.npz"], "no checkpoint nowhere.npz"),
    ],
)
def test_mistakes_are_sentences(arguments: list[str], words: str, tmp_path: Any) -> None:
    from click.testing import CliRunner

    from rlflow.cli import main

    out = ["--out", str(tmp_path / "x.npz")] if arguments[0] == "train" else []
    done = CliRunner().invoke(main, [*arguments, *out])
    assert done.exit_code != 0
    assert words in done.output


def test_graphs_that_the_engine_still_holds_are_not_openings(trained: Any) -> None:
    from rlflow.agents.rlflow.ranked import RankedSearch

    searches = [RankedSearch.real(trained.agent, trained.real, 0, None) for _ in range(2)]
    for one in searches:
        while one.step():
            pass
    assert searches[1].opened == 0
    assert searches[0]._gain == searches[1]._gain  # it went the same ways all the same


@pytest.mark.parametrize("name", ["plateau", "exclusive", "twins"])
def test_the_steepest_walk_is_the_greedy_search(name: str) -> None:
    from rlflow.agents.rlflow.real import SteepestPilot
    from rlflow.env.reward import Improvement
    from rlflow.env.walks import Episode, Walks

    episode, pilot = Episode(Walks(BY_NAME[name].problem()), Improvement(), 100), SteepestPilot()
    while not episode.ended:
        episode.step(pilot.choose(episode))
    assert episode.place.node.cost == pytest.approx(search.solve(BY_NAME[name].problem(), "greedy").cost_after_ms)


@pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: tiny.name)
def test_backtracking_has_the_budget_that_the_model_leaves(tiny: Any) -> None:
    alone = search.solve(tiny.problem("500x"), "backtracking")
    for share in (0.0, 0.5):
        found = search.solve(tiny.problem("1000x"), f"rlflow:share={share}")
        assert found.cost_after_ms <= alone.cost_after_ms * (1 + 1e-9)


def test_the_model_stops_at_its_share(trained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlflow.agents.rlflow import strategy

    begun: list[int] = []
    real = strategy._without_model

    def spied(problem: Problem, best: Any) -> Any:
        begun.append(problem.meter.expansions)
        return real(problem, best)

    monkeypatch.setattr(strategy, "_without_model", spied)
    search.solve(BY_NAME["plateau"].problem("6x"), f"rlflow:checkpoint={trained.out},descent=no,share=0.5")
    assert begun == [3]


@pytest.mark.parametrize(
    ("spec", "drawn"),
    [("rlflow", False), ("rlflow:worldmodel=latent", True), ("xrlflow", True), ("xrlflow:decode=beam", False)],
)
def test_who_draws_says_so(spec: str, drawn: bool) -> None:
    assert search.make(spec).randomised is drawn
