"""The bench of learned searches: its families, its doubles, and what it calls ahead."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlflow import nn, search

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "reproduce" / "learning"), str(ROOT / "reproduce" / "common")]

import chains  # noqa: E402 - from reproduce/learning
import families  # noqa: E402 - from reproduce/learning
import mixtures  # noqa: E402 - from reproduce/learning
import tables  # noqa: E402 - from reproduce/learning

CONFIG = families.CONFIG


def test_what_is_trained_on_is_not_judged_by() -> None:
    parts = {part: CONFIG[part] for part in families.PARTS}
    assert [len(parts[part]) for part in ("training", "unseen", "further", "fresh")] == [8, 8, 16, 8]
    every = [name.partition("@")[0] for names in parts.values() for name in names]
    assert len(every) == len(set(every))
    assert set(chains.LESSONS) == {*parts["training"], *parts["further"]}


def test_the_default_is_judged_as_it_ships_and_without_its_learned_member() -> None:
    default = search.make("mixed")
    assert search.make(mixtures.with_chains()).strategies() == default.strategies()  # type: ignore[attr-defined]
    assert default.slice == mixtures.SHORT  # type: ignore[attr-defined]
    names = [one.name for one in search.make(f"mixed:members={mixtures.DEFAULT}").strategies()]  # type: ignore[attr-defined]
    assert names == [*(one.name for one in default.strategies() if one.name != "levin"), "mcts"]  # type: ignore[attr-defined]


#: A model of the last part is smaller than a block.
SMALLER = {"whisper_encoder": 71}


@pytest.mark.parametrize("family", [name for part in families.PARTS for name in CONFIG[part]])
def test_a_family_is_a_block_that_reads_and_prints(family: str) -> None:
    graph = families.read(family)
    assert SMALLER.get(family, 0.8 * CONFIG["nodes"]) <= graph.num_working_nodes <= CONFIG["nodes"]
    assert families.path_of(family).read_text(encoding="utf-8") == graph.text() + "\n"


def test_a_block_of_a_block_is_smaller_and_lies_inside() -> None:
    whole = families.read(CONFIG["training"][0])
    part = families.block(whole, 0.9, 30)  # the last 30: the end is not passed over
    assert part.num_working_nodes == 30
    assert families.block(whole, 0.0, 10**6).num_working_nodes == whole.num_working_nodes


def test_what_is_ahead_and_what_is_level() -> None:
    sure, wide = tables.Gain(5.0), tables.Gain.of([4.0, 5.0, 6.0])
    assert wide.half == pytest.approx(4.303 / np.sqrt(3))
    assert tables.Gain(5.1).ahead(sure)
    assert not tables.Gain(5.1).ahead(wide)  # the intervals meet
    assert not tables.Gain(5.004).ahead(sure)  # by nothing
    assert tables.Gain(4.996).level(sure)
    assert not tables.Gain(4.99).level(sure)


def row(family: str, name: str, role: str, gain: float, of: str = "", seed: int = 0) -> dict[str, Any]:
    return {"kind": "search", "family": family, "half": "unseen", "name": name, "role": role, "of": of,
            "budget": "1s", "seed": seed, "gain": gain}  # fmt: skip


def test_verdicts_are_against_the_best_without_learning_and_the_untrained() -> None:
    rows = []
    for family, greedy, beam, agent, fresh in (("a", 1, 2, 3, 2), ("b", 2, 1, 2, 3), ("c", 4, 1, 1, 0)):
        rows += [row(family, "greedy", "without", greedy), row(family, "beam", "without", beam)]
        rows += [row(family, "agent", "learned", agent), row(family, "agent untrained", "double", fresh, "agent")]
        rows += [row(family, "agent even", "double", 9, "agent")]
    mine = tables.gains(rows, "1s", "unseen")
    assert tables.verdict(mine, "agent", ["greedy", "beam"]) == (2, 1, 3)
    assert tables.verdict(mine, "agent", ["agent untrained"]) == (2, 2, 3)
    assert tables.verdict(mine, "agent", ["never run"]) == (0, 0, 0)
    text = "\n".join(tables.lines(rows))
    assert "| agent | 2 of 3 | 1 of 3 | 2 of 3 | 2 of 3 |" in text
    assert "| greedy | 1.00 | 2.00 | 4.00 | 2.333 |" in text


@pytest.mark.skipif(nn.available() is not None, reason=str(nn.available()))
def test_doubles_differ_from_the_agent_in_what_their_names_say(tmp_path: Path) -> None:
    import entrants

    from rlflow.agents.xrlflow.trained import SHIPPED, PolicyCheckpoint
    from rlflow.search.levin.chain_policy import by_hand
    from rlflow.search.levin.trained import SHIPPED as SHIPPED_CHAINS
    from rlflow.search.levin.trained import LevinCheckpoint

    found = {one.name: one for one in entrants.entrants(tmp_path, 2)}
    roles = {one.role for one in found.values()}
    assert roles == {"without", "learned", "double"}
    assert all(one.of in found for one in found.values() if one.role == "double")
    shipped = PolicyCheckpoint.load(SHIPPED).weights

    def changed(file: str) -> set[str]:
        weights = PolicyCheckpoint.load(tmp_path / file).weights
        return {name for name in shipped if not np.array_equal(weights[name], shipped[name])}

    assert changed("trained.npz") == set()
    assert changed("no-prior.npz") == {"prior"}
    assert changed("even.npz") == {"prior", "score.weight"}
    assert len(changed("untrained-0.npz")) > 30
    assert found["xrlflow untrained"].at(1).endswith("untrained-1.npz")
    assert "levin" not in found["mixed"].spec
    files = ("levin-by-hand.npz", "levin-even.npz", "levin.npz")
    hand, even, own = (LevinCheckpoint.load(tmp_path / file).policy() for file in files)
    assert np.array_equal(own.flat, LevinCheckpoint.load(SHIPPED_CHAINS).policy().flat)
    assert np.array_equal(hand.flat, by_hand(own.shape)) and not even.flat.any() and own.flat.any()
    first, second = (PolicyCheckpoint.load(tmp_path / f"untrained-{seed}.npz").weights for seed in (0, 1))
    assert not np.array_equal(first["score.weight"], second["score.weight"])
