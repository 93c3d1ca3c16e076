"""Hyper-parameters of X-RLflow, by preset: the paper's, and ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlflow.errors import UsageError
from rlflow.nn.fields import read_fields
from rlflow.nn.policy_config import PolicyConfig


@dataclass(frozen=True)
class TrainConfig:
    """How an agent is trained. The defaults are X-RLflow's (its ``run_gn_ppo.py``).

    ``lr``: Adam's; ``anneal``: lower it linearly to a tenth over the training; ``play_lr``: of its
    own play, where that is another than of imitation (0: the same). ``gamma``, ``lam``: discount, and decay
    of generalised advantages. ``clip``: of the ratio of probabilities. ``epochs``: passes over an update's data, in
    minibatches of ``minibatch`` steps; ``episodes``: played for it. ``horizon``: most rewrites an episode,
    ``patience``: most without a better graph (0: any number); both truncate it.
    ``value_weight``, ``entropy_weight``: of these terms of the loss. ``grad_norm``: gradients are cut to.
    ``target_kl``: an update ends early once the policy has moved 1.5 times as far, from update ``kl_after`` on.
    ``reward``: ``improvement``, ``potential``, or ``end-to-end`` every ``every`` steps. ``policy``: the network.
    ``rounds``: of imitation before the first update (0: none), each of ``imitate`` passes over demonstrations; in the
    first they come from the search strategies ``teacher``, joined by semicolons, each of which may spend
    ``teacher_budget`` on a model; in the others the policy's own search with ``own_budget`` competes with them.
    ``orders``: in how many other orders a demonstration's rewrites are shown too. ``teach_nodes``: the most nodes of a
    graph that the teachers are asked about (0: any number); a larger one's first demonstrations are the policy's own,
    of the second round, because a search that misses in many layers what it finds in one would teach to leave it.
    """

    lr: float = 5e-4
    anneal: bool = False
    play_lr: float = 0.0
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    epochs: int = 4
    minibatch: int = 16
    episodes: int = 10
    horizon: int = 100
    patience: int = 0
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    grad_norm: float = 0.5
    target_kl: float = 0.05
    kl_after: int = 10
    reward: str = "improvement"
    every: int = 5
    rounds: int = 0
    imitate: int = 20
    teacher: str = "backtracking:alpha=1.3"
    teacher_budget: str = "2000x"
    own_budget: str = "400x"
    orders: int = 4
    teach_nodes: int = 0
    policy: PolicyConfig = field(default_factory=PolicyConfig)

    def __post_init__(self) -> None:
        whole = ("epochs", "minibatch", "episodes", "horizon", "every")
        wrong = [name for name in whole if getattr(self, name) < 1]
        wrong += [
            name for name in ("patience", "rounds", "imitate", "orders", "teach_nodes") if getattr(self, name) < 0
        ]
        wrong += [name for name in ("gamma", "lam") if not 0 <= getattr(self, name) <= 1]
        wrong += [name for name in ("lr", "clip", "grad_norm", "target_kl") if not getattr(self, name) > 0]
        wrong += ["play_lr"] if self.play_lr < 0 else []
        if wrong:
            raise UsageError(f"The training option {wrong[0]!r} is {getattr(self, wrong[0])}, which is out of range.")

    @property
    def teachers(self) -> list[str]:
        """The strategies of ``teacher``."""
        return [name.strip() for name in self.teacher.split(";") if name.strip()]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TrainConfig:
        """The reverse of :meth:`to_dict`."""
        return cls(**{**plain, "policy": PolicyConfig(**plain["policy"])})

    def with_options(self, options: Mapping[str, str]) -> TrainConfig:
        """With values from text: a field's name, or ``policy.`` and a field's name. Raises :class:`UsageError`."""
        mine = {name: text for name, text in options.items() if not name.startswith("policy.")}
        inner = {name[7:]: text for name, text in options.items() if name.startswith("policy.")}
        policy = dataclasses.replace(self.policy, **read_fields(PolicyConfig, inner, "policy."))
        return dataclasses.replace(self, **read_fields(TrainConfig, mine), policy=policy)


PRESETS: dict[str, TrainConfig] = {
    # The paper's; it plays 10 episodes of at most 100 steps an update.
    "paper": TrainConfig(),
    # Ours: choices begin near the greedy one (prior), and what is new is found around it; an episode ends when nothing
    # better came for a while; larger minibatches and a falling rate, because the graphs of several models differ more
    # than those of one. The discount makes what pays soon come first: expansions are what a search has few of.
    "tuned": TrainConfig(
        lr=1e-3,
        anneal=True,
        gamma=0.9,
        minibatch=32,
        episodes=16,
        patience=15,
        entropy_weight=0.001,
        target_kl=0.03,
        kl_after=0,
        policy=PolicyConfig(hidden=48, layers=2, prior=8.0),
    ),
}
# What ships: begins with what patient searches found on small models, among it rewrites that lose before they pay. The
# discount lets these be worth their detour, the prior no longer forbids it.
PRESETS["taught"] = dataclasses.replace(
    PRESETS["tuned"],
    play_lr=2e-4,
    gamma=0.99,
    episodes=32,
    patience=20,
    rounds=3,
    imitate=12,
    teacher="backtracking:alpha=1.3;backtracking:alpha=1.05",
    teacher_budget="4000x",
    own_budget="300x",
    orders=3,
    teach_nodes=78,
    policy=PolicyConfig(hidden=48, layers=2, prior=2.0),
)


def preset(name: str) -> TrainConfig:
    """The preset of that name; raises :class:`UsageError`."""
    if name not in PRESETS:
        raise UsageError(f"There is no training preset {name!r}; there are {', '.join(PRESETS)}.")
    return PRESETS[name]
