"""The linear controller that CMA-ES adapts in dreams, and the variational encoder: RLFlow's published form."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policies import needs_torch
from worlds import BY_NAME, after_a_round, best_gain, world_trainer

from rlflow import search
from rlflow.errors import UsageError
from rlflow.nn.token_vocabulary import STOP_ROW
from rlflow.search import StopToken, generator
from rlflow.testing import optimum

pytestmark = needs_torch
torch = pytest.importorskip("torch", reason="torch is not installed; pip install 'rlflow[rl]'")
ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "horizon": "8", "patience": "0", "encoder_hidden": "16", "hidden": "24", "latent": "8", "mixtures": "3",
    "fit_steps": "200", "dream_updates": "20", "dream_horizon": "8", "dream_horizon_end": "8", "random_episodes": "10",
    "episodes": "1", "locations": "6", "rollouts": "6", "dreams": "32", "controller_size": "32",
}  # fmt: skip
QUICK = {"fit_steps": "4", "dream_updates": "3", "random_episodes": "2", "rollouts": "2"}
TOY = "exclusive"
ROWS = 5


def config(preset: str = "cma", **options: str) -> Any:
    from rlflow.agents.rlflow.config import preset as preset_of

    return preset_of(preset).with_options({**SMALL, **options})


def trainer(name: str = TOY, preset: str = "cma", seed: int = 0, **more: Any) -> Any:
    return world_trainer(name, config(preset, **more.pop("options", {})), seed, **more)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One round on the toy that greedy does not solve: collected, fitted, dreamt, acted."""
    return after_a_round(trainer, tmp_path_factory.mktemp("trained"))


# --- the controller ---------------------------------------------------------------------------------------------------


def crowd(members: int, seed: int = 0, **options: str) -> Any:
    from rlflow.agents.rlflow.evolving import LinearController

    made = LinearController(config(**options), ROWS, members)
    noise = torch.from_numpy(generator(seed).standard_normal(tuple(made.flat.shape))).float()
    made.flat.add_(0.3 * noise)
    return made


def states(count: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Latent vectors, memories, and what fires: two rules, one of them with three matches."""
    from rlflow.agents.rlflow.latent import Fires

    random, options = torch.Generator().manual_seed(seed), config()
    z, hidden = (torch.randn(count, size, generator=random) for size in (options.latent, options.hidden))
    counts = torch.tensor([[1.0, 0, 3, 0, 1]]).repeat(count, 1)
    return z, hidden, Fires(counts, torch.rand(count, ROWS, generator=random) * (counts > 0))


def test_members_side_by_side_choose_as_each_alone() -> None:
    from rlflow.agents.rlflow.dream import choose
    from rlflow.agents.rlflow.latent import Fires

    together, (z, hidden, fires) = crowd(7), states(7 * 4)
    row, location, log_prob, value = choose(together, z, hidden, fires, None)
    assert len(set(row.tolist())) > 1
    assert len(set(location.tolist())) > 1
    assert float(value.abs().sum()) == 0
    for member in range(7):
        alone, mine = crowd(1), slice(4 * member, 4 * member + 4)
        alone.flat.copy_(together.flat[member : member + 1])
        found = choose(alone, z[mine], hidden[mine], Fires(fires.counts[mine], fires.best[mine]), None)
        assert torch.equal(found[0], row[mine])
        assert torch.equal(found[1], location[mine])
        torch.testing.assert_close(found[2], log_prob[mine])


def test_scores_are_linear_in_what_is_seen() -> None:
    """The score of each rule against its own sum, and of each match against its distance from the aim."""
    one, (z, hidden, fires) = crowd(1), states(3)
    seen, _ = one(z, hidden, fires)
    flat, inputs = one.flat[0].double().numpy(), seen.double().numpy()
    sizes = np.cumsum([ROWS * inputs.shape[1], ROWS, inputs.shape[1], ROWS])
    weight, bias, aim, offset, slopes = np.split(flat, sizes)
    best = fires.best.double().numpy()
    scores = inputs @ weight.reshape(ROWS, -1).T + bias + 10 * slopes[0] * best / best.max(1, keepdims=True)
    scores[:, [1, 3]] = -np.inf  # do not fire
    expected = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    np.testing.assert_allclose(one.rules(seen, fires)[:, [0, 2, 4]].numpy(), expected[:, [0, 2, 4]], rtol=1e-3)
    assert bool((one.rules(seen, fires)[:, [1, 3]] < -1e6).all())
    row = torch.full((3,), 2)
    off = np.abs(np.log1p(np.arange(3)) - (inputs @ aim + offset[2])[:, None])
    places = -10 * slopes[1] * off
    expected = places - np.log(np.exp(places).sum(1, keepdims=True))
    found = one.places(seen, row, fires)
    np.testing.assert_allclose(found[:, :3].numpy(), expected, rtol=1e-3, atol=1e-4)
    assert bool((found[:, 3:] < -1e6).all())


def test_a_fresh_controller_takes_the_best_match_of_the_rule_that_promises_most() -> None:
    from rlflow.agents.rlflow.dream import choose
    from rlflow.agents.rlflow.evolving import LinearController

    z, hidden, fires = states(20)
    fires.best[:, 0] = 0.0  # of stop
    row, location, _, _ = choose(LinearController(config(), ROWS), z, hidden, fires, None)
    assert torch.equal(row, fires.best.argmax(1))
    assert int(location.sum()) == 0


# --- the dreams -------------------------------------------------------------------------------------------------------


def test_all_candidates_have_the_same_dreams() -> None:
    """With the temperature on, in a world that knows nothing yet: equal members earn the same, so what differs is the
    member; in other dreams they earn something else.
    """
    from rlflow.agents.rlflow.dream import Dream, random_of
    from rlflow.agents.rlflow.evolving import LinearController, rollouts
    from rlflow.agents.rlflow.pilot import dream_starts

    trained = trainer("twins", options=QUICK)
    trained._begin()
    agent, world = trained.agent, trained.agent.networks["world"]
    with torch.no_grad():
        world.ends.bias.fill_(-9.0)
    equal = LinearController(trained.config, world.rows, 5)
    state = dream_starts(agent.memories, trained.replay.episodes, 6, generator(0))
    env = Dream(world, "change", 1.5, 0.0, random_of(generator(1)))
    returns, total, steps = rollouts(env, equal, state, 8, agent.units())
    assert returns.shape == (5,)
    np.testing.assert_allclose(returns, returns[0], rtol=1e-5)
    assert total != 0
    assert steps > 5
    env = Dream(world, "change", 1.5, 0.0, random_of(generator(2)))
    other = rollouts(env, equal, state, 8, agent.units())[0]
    assert abs(other[0] - returns[0]) > 1e-6


@dataclasses.dataclass
class Steady:
    """Each step earns what the member's number says; the second half of the states ends after two steps."""

    gamma: float = 0.5
    copies: int = 1
    asked: int = 0

    def step(self, state: Any, row: Any, location: Any) -> tuple[Any, Any]:
        self.asked += 1
        size = len(state.alive) // self.copies
        reward = torch.arange(self.copies).repeat_interleave(size) * state.alive.float()
        alive = state.alive.clone()
        if self.asked >= 2:
            alive.view(self.copies, size)[:, size // 2 :] = False
        return dataclasses.replace(state, alive=alive), reward


def test_returns_are_discounted_and_in_units_of_their_problem() -> None:
    from rlflow.agents.rlflow.dream import DreamState
    from rlflow.agents.rlflow.evolving import rollouts

    z, hidden, fires = states(4)
    memory, zero = (hidden.unsqueeze(0), hidden.unsqueeze(0)), torch.zeros(4)
    spec = torch.tensor([0, 0, 1, 1])
    state = DreamState(z, fires, memory, zero, zero, torch.ones(4, dtype=torch.bool), spec)
    returns, total, steps = rollouts(Steady(), crowd(3), state, 3, torch.tensor([1.0, 4.0]))  # type: ignore[arg-type]
    long, short = 1 + 0.5 + 0.25, (1 + 0.5) / 4
    np.testing.assert_allclose(returns, [0, (long + short) / 2, long + short])
    assert total == pytest.approx((3 + 2) / 2)
    assert steps == 3 * (2 * 3 + 2 * 2)


def test_generations_move_the_controller_to_the_mean_and_raise_what_is_dreamt(trained: Any) -> None:
    """From a controller that stops at once: all earn nothing, so the distribution widens until one of them acts."""
    from rlflow.agents.rlflow.dream import Dream, random_of
    from rlflow.agents.rlflow.evolving import DreamEvolution, LinearController
    from rlflow.agents.rlflow.pilot import dream_starts

    agent, options = trained.agent, dataclasses.replace(trained.config, rule_prior=0.0, temperature=0.5)
    learner = LinearController(options, agent.networks["world"].rows)
    learner.flat[0, learner.sizes[0] + STOP_ROW] = 4.0
    teacher, rng = DreamEvolution(options, learner), generator(5)
    env = Dream(agent.networks["world"], "change", 0.5, 0.0, random_of(rng))
    rows = []
    for _ in range(30):
        state = dream_starts(agent.memories, trained.replay.episodes, options.rollouts, rng)
        rows.append(teacher.update(env, state, 8, agent.units(), rng))
        np.testing.assert_array_equal(learner.flat[0].numpy(), teacher.search.mean.astype(np.float32))
    returns = [row["dream_return"] for row in rows]
    assert returns[0] == 0
    assert np.mean(returns[-5:]) > 0.3 * best_gain(TOY), returns
    assert teacher.search.generations == 30


@pytest.mark.parametrize(("full_size", "shape"), [("100000", 2), ("10", 1)])
def test_small_controllers_have_a_whole_covariance(full_size: str, shape: int) -> None:
    agent = trainer("twins", options=QUICK | {"full_size": full_size})
    agent._begin()
    assert agent.agent.teacher.search.covariance.ndim == shape


# --- the loop ---------------------------------------------------------------------------------------------------------


def test_a_controller_that_evolved_in_dreams_alone_solves_the_real_toy(trained: Any) -> None:
    known = best_gain(TOY)
    greedy = search.solve(BY_NAME[TOY].problem(), "greedy")
    assert math.log(greedy.cost_before_ms / greedy.cost_after_ms) < 0.99 * known
    assert trained.progress.best_score == pytest.approx(known)
    found = search.solve(BY_NAME[TOY].problem("2x"), f"rlflow:checkpoint={trained.out},descent=no,share=1")
    assert found.cost_after_ms == pytest.approx(optimum(BY_NAME[TOY]).cost_ms)


def test_every_figure_of_the_logs_is_defined(trained: Any) -> None:
    rows = [json.loads(line) for line in (trained.logs / "log.jsonl").read_text().splitlines()]
    assert {"best_return", "sigma", "axis_ratio"} <= set(rows[0])
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert not sorted({name for row in rows for name in row if f"`{name}`" not in page})


@pytest.mark.parametrize("full_size", ["0", "1000"])
def test_a_resumed_training_goes_on_with_the_same_distribution(full_size: str, tmp_path: Path) -> None:
    options = QUICK | {"full_size": full_size}
    first = trainer("twins", out=tmp_path / "a.npz", options=options)
    first.train(500, rounds=2)
    again = trainer("twins", out=tmp_path / "a.npz", options=options, resume=True)
    for _ in range(2):
        one, two = (agent.agent.teacher.search.arrays() for agent in (first, again))
        assert one.keys() == two.keys()
        assert all(np.array_equal(array, two[name]) for name, array in one.items())
        assert first.agent.teacher.search.generations == again.agent.teacher.search.generations > 0
        for agent in (first, again):
            agent.agent.memories.refresh()
            agent.agent._dream(2, generator(8), lambda: False)


def test_the_same_seed_gives_the_same_file(tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        agent = trainer("plateau", seed=3, out=tmp_path / name, options=QUICK)
        agent.train(500, rounds=2)
        files.append((tmp_path / f"{name}").read_bytes())
    weights = [agent_weights(tmp_path / name) for name in ("a", "b")]
    assert weights[0] == weights[1]
    assert "controller/flat" in weights[0]


def agent_weights(path: Path) -> dict[str, bytes]:
    from rlflow.agents.rlflow.trained import WorldCheckpoint

    return {name: array.tobytes() for name, array in WorldCheckpoint.load(path).weights.items()}


def test_an_interrupt_while_dreaming_keeps_what_was_learnt(tmp_path: Path) -> None:
    """Stopped in the third of a thousand generations of the second round: the best is what the first one left."""
    agent, stop = trainer("twins", out=tmp_path / "a.npz", options=QUICK), StopToken()
    agent.train(500, rounds=1)
    best = agent_weights(tmp_path / "a.npz")
    again = trainer("twins", out=tmp_path / "a.npz", options=QUICK, resume=True)
    before = again.agent.teacher.search.generations
    again.agent.config = dataclasses.replace(again.config, dream_updates=1000, fit_steps=0)
    update = again.agent.teacher.update

    def watched(*given: Any) -> dict[str, float]:
        if again.agent.teacher.search.generations == before + 2:
            stop.stop()
        return update(*given)

    again.agent.teacher.update = watched
    again.train(500, stop=stop)
    assert again.agent.teacher.search.generations == before + 3
    assert agent_weights(tmp_path / "a.npz") == best
    last = trainer("twins", out=tmp_path / "a.npz", options=QUICK, resume=True)
    assert last.agent.teacher.search.generations == before + 3
    mean = last.agent.teacher.search.mean.astype(np.float32)
    np.testing.assert_array_equal(last.agent.controller.flat[0].numpy(), mean)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"controller": "cem"}, "expected ppo, cma"),
        ({"encoder": "wide"}, "expected plain, variational"),
        ({"population": "3"}, "out of range"),
        ({"sigma": "0"}, "out of range"),
        ({"rollouts": "0"}, "out of range"),
        ({"w_kl": "-1"}, "out of range"),
        ({"worldmodel": "graph"}, "are of the latent form"),
    ],
)
def test_options_that_make_no_sense_are_sentences(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        config(**options)


# --- the variational encoder ------------------------------------------------------------------------------------------


def test_the_divergence_is_the_closed_form() -> None:
    from rlflow.agents.rlflow.latent import divergence

    random = torch.Generator().manual_seed(0)
    mean, log_std = torch.randn(6, 4, generator=random), torch.randn(6, 4, generator=random)
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(normal(mean, log_std.exp()), normal(0.0, 1.0)).sum(1)
    torch.testing.assert_close(divergence(mean, log_std), expected)


def test_a_variational_encoder_draws_while_it_is_fitted_and_not_when_it_acts() -> None:
    from rlflow.agents.rlflow.latent_fit import losses, sequences

    agent = trainer("twins", "tuned", options=QUICK | {"encoder": "variational"})
    agent._begin()
    memories, world = agent.agent.memories, agent.agent.networks["world"]
    scenes = [memories.scene(key) for key in memories.replay.states]
    mean, log_std = world.belief(scenes)
    assert mean.shape == log_std.shape == (len(scenes), 8)
    assert torch.equal(world.encode(scenes), mean)
    batch = sequences(agent.replay.episodes[:3], range(3), memories)
    one, same, other = (losses(world, memories, batch, generator(seed), 0) for seed in (0, 0, 1))
    assert one["likelihood_loss"].item() == same["likelihood_loss"].item() != other["likelihood_loss"].item()
    one["kl_loss"].backward(retain_graph=True)
    assert all(bool(p.grad.abs().sum() > 0) for p in world.project.parameters())
    plain = trainer("twins", "tuned", options=QUICK)
    plain._begin()
    assert "kl_loss" not in losses(plain.agent.networks["world"], plain.agent.memories, batch, generator(0), 0)


def test_the_weight_of_the_divergence_holds_the_vectors_near_the_standard_normal() -> None:
    found = []
    for weight in ("0", "10"):
        agent = trainer("twins", "tuned", options=QUICK | {"encoder": "variational", "w_kl": weight})
        agent._begin()
        found.append(agent.agent.fitter.fit(60, generator(0))["kl_loss"])
    assert found[1] < 0.3 * found[0], found


def test_the_published_form_whole_solves_the_toy() -> None:
    """Variational encoder, MDN-RNN with a temperature that falls, linear controller by CMA-ES."""
    agent = trainer(options={"encoder": "variational", "temperature": "1.2", "temperature_end": "0.8"})
    agent.train(1000, rounds=2)
    assert agent.progress.best_score == pytest.approx(best_gain(TOY))
