"""Who takes part: the searches without learning, the learned ones, and of each of these its doubles.

A double is the same strategy by other weights. ``untrained``: fresh ones, others with every seed. ``no prior``: the
trained ones without the score that a candidate begins with for its share of the largest gain. ``even``: none, so that
all candidates are equally likely, which is random order. Of the world model also ``no model``: its share is 0. The
policy of chains draws nothing: its ``untrained`` double has the weights by hand that its training began with.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np
from mixtures import DEFAULT, LONG, SHORT, with_chains  # from this folder

from rlflow.agents.rlflow.trained import all_weights, load_world, make_networks, shipped_world
from rlflow.agents.torch_state import weights_of
from rlflow.agents.xrlflow.trained import SHIPPED, PolicyCheckpoint
from rlflow.nn.policy import make_policy
from rlflow.search.levin.chain_policy import by_hand
from rlflow.search.levin.trained import SHIPPED as SHIPPED_CHAINS
from rlflow.search.levin.trained import LevinCheckpoint

WITHOUT = ("greedy", "random", "backtracking", "beam", "mcts", "portfolio", "mixed", "mixed, long turns")
#: Searches by a policy: their names here, and how they are asked for.
POLICIES = {
    "xrlflow": "xrlflow:",
    "xrlflow-mcts": "xrlflow-mcts:",
    "mcts-policy": "mcts-policy:",
    "mcts-policy value": "mcts-policy:leaf=value,",
}
#: The default search with a learned member more; its control is the default itself.
_MIXED = f"mixed:slice={SHORT},members={DEFAULT}+"


class Entrant(NamedTuple):
    """``spec`` of the search, with {seed} where the weights are drawn; ``of``: whose double it is, else empty.

    ``role``: ``without`` learning, ``learned``, or ``double``.
    """

    name: str
    spec: str
    role: str
    of: str = ""
    drawn: bool = False

    def at(self, seed: int) -> str:
        """The search of one seed."""
        return self.spec.format(seed=seed)


def entrants(
    folder: Path, seeds: int, checkpoint: Path | None = None, chains: Path | None = None
) -> list[Entrant]:
    """All that take part; the doubles' weights are written into ``folder``. ``checkpoint``: the policy, and ``chains``:
    that of chains (default: those that ship).
    """
    others = {
        "mixed": f"mixed:slice={SHORT},members={DEFAULT}",
        "mixed, long turns": f"mixed:slice={LONG},members={DEFAULT}",
    }
    found = [Entrant(name, others.get(name, name), "without") for name in WITHOUT]
    chosen = PolicyCheckpoint.load(checkpoint or SHIPPED)
    folder.mkdir(parents=True, exist_ok=True)
    chosen.save(folder / "trained.npz")
    _policy_doubles(chosen, folder, seeds)
    for name, asked in POLICIES.items():
        by = f"{asked}checkpoint={folder}"
        found.append(Entrant(name, f"{by}/trained.npz", "learned"))
        found.append(Entrant(f"{name} untrained", f"{by}/untrained-{{seed}}.npz", "double", name, drawn=True))
        found += [Entrant(f"{name} {double}", f"{by}/{double}.npz", "double", name) for double in ("no-prior", "even")]
    _untrained_worlds(folder, seeds)
    found.append(Entrant("rlflow", "rlflow", "learned"))
    fresh = f"rlflow:checkpoint={folder}/world-{{seed}}.npz"
    found.append(Entrant("rlflow untrained", fresh, "double", "rlflow", drawn=True))
    found.append(Entrant("rlflow no model", "rlflow:share=0", "double", "rlflow"))
    for name, trained, untrained in (
        ("mixed and xrlflow", f"xrlflow(checkpoint={folder}/trained.npz)", f"xrlflow(checkpoint={folder}/untrained"),
        ("mixed and rlflow", "rlflow", f"rlflow(checkpoint={folder}/world"),
    ):
        found.append(Entrant(name, _MIXED + trained, "learned"))
        fresh = f"{_MIXED}{untrained}-{{seed}}.npz)"
        found.append(Entrant(f"{name} untrained", fresh, "double", name, drawn=True))
    return found + _of_chains(folder, chains or SHIPPED_CHAINS)


def _of_chains(folder: Path, chains: Path) -> list[Entrant]:
    trained = LevinCheckpoint.load(chains)
    trained.save(folder / "levin.npz")
    shape = trained.policy().shape
    for name, flat in (("by-hand", by_hand(shape)), ("even", np.zeros(shape.size))):
        weights = {group: array.astype(np.float32) for group, array in shape.split(flat).items()}
        dataclasses.replace(trained, weights=weights).save(folder / f"levin-{name}.npz")
    found = [
        Entrant("levin", f"levin:checkpoint={folder}/levin.npz", "learned"),
        Entrant("levin untrained", f"levin:checkpoint={folder}/levin-by-hand.npz", "double", "levin"),
        Entrant("levin even", f"levin:checkpoint={folder}/levin-even.npz", "double", "levin"),
    ]
    for name, file, role, of in (
        ("mixed and levin", "levin", "learned", ""),
        ("mixed and levin untrained", "levin-by-hand", "double", "mixed and levin"),
    ):
        found.append(Entrant(name, with_chains(folder / f"{file}.npz"), role, of))
    return found


def _policy_doubles(trained: PolicyCheckpoint, folder: Path, seeds: int) -> None:
    for seed in range(seeds):
        fresh = weights_of(make_policy(trained.config.policy, trained.vocabulary, seed))
        dataclasses.replace(trained, weights=fresh).save(folder / f"untrained-{seed}.npz")
    without = {name: np.zeros_like(array) if name == "prior" else array for name, array in trained.weights.items()}
    dataclasses.replace(trained, weights=without).save(folder / "no-prior.npz")
    even = {name: np.zeros_like(array) if name == "score.weight" else array for name, array in without.items()}
    dataclasses.replace(trained, weights=even).save(folder / "even.npz")


def _untrained_worlds(folder: Path, seeds: int) -> None:
    trained = load_world(shipped_world("graph"))
    for seed in range(seeds):
        fresh = all_weights(make_networks(trained.config, trained.vocabulary, seed))
        dataclasses.replace(trained, weights=fresh).save(folder / f"world-{seed}.npz")
