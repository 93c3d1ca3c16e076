"""What a patient search found is shown to the policy, in any order that leads there, and learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policies import SMALL, needs_torch
from worlds import BY_NAME, tiny_spec

from rlflow import search
from rlflow.errors import UsageError
from rlflow.search import StopToken
from rlflow.testing import TINY, optimum

pytestmark = needs_torch
torch = pytest.importorskip("torch", reason="torch is not installed; pip install 'rlflow[rl]'")


def config(**options: Any) -> Any:
    from rlflow.agents.xrlflow.config import TrainConfig
    from rlflow.nn.policy_config import PolicyConfig

    given = {"horizon": 12, "lr": 3e-3, "rounds": 1, "imitate": 60, "teacher_budget": "300x", "own_budget": "60x"}
    return TrainConfig(**{**given, "policy": PolicyConfig(**SMALL), **options})


def expert(name: str, **options: Any) -> Any:
    from rlflow.agents.xrlflow.demonstrations import Expert
    from rlflow.nn.token_vocabulary import TokenVocabulary

    spec = tiny_spec(name)
    found = Expert(spec, 0, config(**options), TokenVocabulary.of(spec.load().ruleset.names))
    found.consult()
    return found


@pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: tiny.name)
def test_every_order_leads_to_the_teachers_graph_and_ends_there(tiny: Any) -> None:
    taught = expert(tiny.name)
    assert 1 <= len(taught.shown()) <= 1 + taught.config.orders
    start = tiny.problem("1x").root().cost
    for one in taught.shown():
        assert one.cost == pytest.approx(taught.cost)
        assert sum(one.rewards) == pytest.approx(np.log(start / one.cost))
        assert len(one.observations) == len(one.good) == len(one.rewards)
        for seen, good in zip(one.observations, one.good, strict=True):
            assert good and all(0 <= action < seen.candidates for action in good)


def test_every_order_leads_there_where_steps_share_what_they_make() -> None:
    """A slice goes up through two branches that meet: what replaces it does so for both, or the old ones live on."""
    from rlflow.agents.xrlflow.demonstrations import Expert
    from rlflow.env import ProblemSpec
    from rlflow.nn.token_vocabulary import TokenVocabulary

    spec = ProblemSpec.of("bert6-classifier?layers=1")
    given = config(horizon=100, teacher="backtracking:alpha=1.05", teacher_budget="800x", orders=6)
    taught = Expert(spec, 0, given, TokenVocabulary.of(spec.load().ruleset.names))
    taught.consult()
    assert len(taught.shown()) == 7 and max(len(one) for one in taught.shown()) > 15
    assert [one.cost for one in taught.shown()] == pytest.approx([taught.cost] * 7)


def test_graphs_that_are_too_large_are_not_taught_but_practised() -> None:
    from rlflow.agents.xrlflow.ppo import Trainer

    taught = expert("valley", teach_nodes=1)
    assert taught.shown() == [] and taught.expansions == 0
    assert expert("valley", teach_nodes=100).shown()
    trainer = Trainer([tiny_spec("valley")], config(rounds=2, imitate=2, teach_nodes=1), seed=0)
    trainer.train(0)
    assert trainer.progress.demonstrated > 0
    taught.practise(trainer.policy, np.random.default_rng(0))
    assert taught.shown()


def test_what_pays_soonest_is_what_is_good() -> None:
    """Gains of 1 at once, 6 after three steps, and 3 that need a step that is no part of the best."""
    from rlflow.agents.xrlflow.demonstrations import _Step, _Way

    gains = (1.0, 0.0, -1.0, 7.0)
    needs: tuple[set[int], ...] = ({0}, {1}, {1, 2}, {1, 2, 3})
    steps = tuple(_Step(0, (), (), gain, frozenset(need)) for gain, need in zip(gains, needs, strict=True))
    way = _Way(None, steps, 0.0)  # type: ignore[arg-type]
    assert way.soonest([0, 1, 2, 3], [0, 1]) == [0, 1]  # 1 a step, and 6 in three steps
    assert way.soonest([0, 2, 3], [0, 2]) == [2]  # 6 in two steps by now
    assert way.soonest([0], [0]) == [0]
    assert way.soonest([], []) == []


def test_steps_that_bring_nothing_are_left_out() -> None:
    from rlflow.agents.xrlflow.demonstrations import shortened

    loaded = tiny_spec("valley").load()
    found = search.solve(loaded.problem("300x"), "backtracking:alpha=1.3")
    assert found.trace
    short = shortened(loaded, found.trace)
    assert 0 < len(short) <= len(found.trace)
    for at in range(len(short)):
        less = short[:at] + short[at + 1 :]
        try:
            cost = loaded.problem("1x").replayed(less).cost
        except UsageError:
            continue
        assert cost > found.cost_after_ms * (1 + 1e-9)


def test_imitation_alone_finds_what_greedy_does_not(tmp_path: Path) -> None:
    from rlflow.agents.xrlflow.ppo import Trainer

    tiny = BY_NAME["valley"]
    path = tmp_path / "agent.npz"
    trainer = Trainer([tiny_spec("valley")], config(), out=path, logs=tmp_path / "logs")
    card = trainer.train(0).card
    assert card["steps"] == 0 < card["demonstrated"]
    found = search.solve(tiny.problem("300x"), f"xrlflow:checkpoint={path},decode=greedy,descent=no")
    assert found.cost_after_ms == pytest.approx(optimum(tiny).cost_ms)
    assert '"imitation"' in (tmp_path / "logs" / "log.jsonl").read_text()


def test_further_rounds_are_the_policys_own_and_never_forget() -> None:
    from rlflow.agents.torch_state import weights_of
    from rlflow.agents.xrlflow.ppo import Trainer

    weights = []
    for _ in range(2):
        trainer = Trainer([tiny_spec("valley"), tiny_spec("exclusive")], config(rounds=2, imitate=20), seed=3)
        trainer.train(0)
        weights.append(weights_of(trainer.policy))
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])
    taught = expert("valley")
    before = taught.cost
    taught.practise(trainer.policy, np.random.default_rng(0))
    assert taught.cost <= before


def test_a_training_that_was_shown_something_resumes(tmp_path: Path) -> None:
    from rlflow.agents.torch_state import weights_of
    from rlflow.agents.xrlflow.ppo import Trainer

    def trainer(name: str, **more: Any) -> Any:
        return Trainer([tiny_spec("valley")], config(imitate=5), out=tmp_path / name, evaluate_every=2, **more)

    whole = trainer("whole.npz")
    whole.train(80)
    half, stop = trainer("half.npz"), StopToken()
    half.train(80, on_update=lambda figures: stop.stop() if figures["update"] == 1 else None, stop=stop)
    again = trainer("half.npz", resume=True)
    assert again.progress.demonstrated == whole.progress.demonstrated
    again.train(80)
    one, two = weights_of(whole.policy), weights_of(again.policy)
    assert all(np.array_equal(one[name], two[name]) for name in one)
