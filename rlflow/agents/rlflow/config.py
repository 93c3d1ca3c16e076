"""Hyper-parameters of world models and of the loop that trains them, by preset."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlflow.errors import UsageError
from rlflow.nn.cma import LEAST
from rlflow.nn.fields import read_fields

#: Forms of a world model.
FORMS = ("latent", "graph")
REWARDS = ("improvement", "potential", "change", "runtime")
GAINS = ("price", "clock")
CONTROLLERS = ("ppo", "cma")
ENCODERS = ("plain", "variational")


@dataclass(frozen=True)
class WorldConfig:
    """How a world model is made and trained. The defaults are RLFlow's where its paper or code has the figure.

    ``worldmodel``: ``latent``, the paper's: an MDN-RNN over one vector a graph, and a controller that learns in its
    dreams; or ``graph``: a model over node embeddings that ranks candidates and looks ahead.

    Collecting: ``gains``: whether a state's gain is its ``price``'s or the ``clock``'s, every ``every`` steps and at
    the end. ``horizon``, ``patience``: of real episodes, as in :class:`rlflow.agents.xrlflow.config.TrainConfig`.
    ``random_episodes``, ``downhill_episodes``: a model, before the first fit, by chance and by price, the steepest way
    first; ``episodes``: a model and round by the current policy, and one more that is greedy and judges it.
    ``stop_chance``: of a random step to stop.

    ``encoder``: ``plain``, whose vectors have mean 0 and variance 1; or ``variational``, which gives a normal
    distribution over vectors, drawn from while fitting, and is held near the standard one with weight ``w_kl``.

    The model: ``encoder_hidden``, ``encoder_layers``, ``message``: of the graph network. ``latent``, ``hidden``,
    ``mixtures``: sizes of the MDN-RNN. ``locations``: most matches of a rule that can be told apart. ``ensemble``:
    heads that predict the reward, each fitted on its own share of the episodes.

    Fitting: ``fit_steps`` a round of ``batch`` episodes (states, for ``graph``) at rate ``lr``; ``graphs``: most graphs
    a step whose encoding has a gradient. ``w_reconstruct``, ``w_contrast``, ``w_reward``, ``w_structure``: weights of
    these terms beside the likelihood.

    Dreaming (``latent``): ``dreams`` side by side, ``dream_updates`` a round; their length goes from ``dream_horizon``
    to ``dream_horizon_end`` and the temperature from ``temperature`` to ``temperature_end`` over ``schedule`` rounds.
    ``disagreement``: standard deviations of the ensemble that a predicted reward is lowered by. ``reward``:
    ``improvement``, ``potential``, ``change`` (of the logarithm of the price), or ``runtime`` (the price itself, as the
    published code has it, for comparison). ``prior``: what the controller begins with in favour of a rule's
    better-priced matches, ``rule_prior`` of rules whose best match has a large share of the largest gain (trained
    parameters; 0: none). ``controller``: what it is and learns by.

    ``ppo``: a network of ``controller_size`` that learns by PPO: ``controller_lr``, ``gamma``, ``lam``, ``clip``,
    ``epochs``, ``minibatch``, ``entropy_weight``.

    ``cma``: linear, as Ha and Schmidhuber's, adapted by CMA-ES, a generation for each of the ``dream_updates``:
    ``population`` candidates (0: as many as usual for the number of parameters) with ``rollouts`` dreams each instead
    of ``dreams``, discounted by ``gamma``; ``sigma``: first step size; ``full_size``: most parameters whose whole
    covariance is learnt; of more, each one's variance alone.

    Looking ahead (``graph``): ``breadth`` candidates are followed ``depth`` steps in the latent graph; ``verify`` of
    them are opened at a time; after ``patience`` openings without a better graph it goes back (0: 6). ``discount``: of
    a gain that needs another step first. ``explore``: share of the opened graphs that are drawn at random while
    collecting. ``opens``: graphs opened a model and round.
    """

    worldmodel: str = "latent"
    gains: str = "price"
    every: int = 5
    horizon: int = 100
    patience: int = 0
    random_episodes: int = 8
    downhill_episodes: int = 0
    episodes: int = 4
    stop_chance: float = 0.02

    encoder: str = "plain"
    encoder_hidden: int = 32
    encoder_layers: int = 2
    message: str = "mean"
    latent: int = 32
    hidden: int = 256
    mixtures: int = 8
    locations: int = 200
    ensemble: int = 1

    fit_steps: int = 200
    batch: int = 10
    lr: float = 2e-3
    graphs: int = 32
    grad_norm: float = 5.0
    w_reconstruct: float = 1.0
    w_contrast: float = 0.1
    w_reward: float = 10.0
    w_structure: float = 3.0
    w_kl: float = 0.01

    dreams: int = 64
    dream_updates: int = 40
    dream_horizon: int = 30
    dream_horizon_end: int = 30
    temperature: float = 1.0
    temperature_end: float = 1.0
    schedule: int = 5
    disagreement: float = 0.0
    reward: str = "improvement"
    controller: str = "ppo"
    controller_lr: float = 1e-3
    controller_size: int = 64
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    epochs: int = 4
    minibatch: int = 512
    entropy_weight: float = 0.01
    prior: float = 0.0
    rule_prior: float = 0.0
    population: int = 0
    rollouts: int = 16
    sigma: float = 0.1
    full_size: int = 300

    breadth: int = 12
    depth: int = 2
    verify: int = 1
    discount: float = 0.9
    explore: float = 0.1
    opens: int = 40

    def __post_init__(self) -> None:
        words = (("worldmodel", FORMS), ("reward", REWARDS), ("gains", GAINS), ("controller", CONTROLLERS),
                 ("encoder", ENCODERS))  # fmt: skip
        for name, allowed in words:
            if getattr(self, name) not in allowed:
                raise UsageError(
                    f"The training option {name!r} is {getattr(self, name)!r}; expected {', '.join(allowed)}."
                )
        if self.worldmodel == "graph" and (self.controller, self.encoder) != ("ppo", "plain"):
            raise UsageError(
                "The training options controller and encoder are of the latent form; worldmodel=graph has neither."
            )
        if self.worldmodel == "graph" and self.gains == "clock":
            raise UsageError(
                "The training options worldmodel=graph and gains=clock do not go together: the graph form learns from "
                "the prices of candidates. Use gains=price with a cost model that measures (--cost onnxruntime)."
            )
        whole = (
            "every", "horizon", "encoder_hidden", "encoder_layers", "latent", "hidden", "mixtures",
            "locations", "ensemble", "batch", "graphs", "dreams", "dream_horizon", "dream_horizon_end", "schedule",
            "controller_size", "epochs", "minibatch", "breadth", "depth", "verify", "opens", "rollouts",
        )  # fmt: skip
        wrong = [name for name in whole if getattr(self, name) < 1]
        shares = ("gamma", "lam", "discount", "explore", "stop_chance")
        wrong += [name for name in shares if not 0 <= getattr(self, name) <= 1]
        rates = ("lr", "controller_lr", "clip", "grad_norm", "sigma")
        wrong += [name for name in rates if not getattr(self, name) > 0]
        zero = (
            "patience",
            "random_episodes",
            "downhill_episodes",
            "episodes",
            "fit_steps",
            "dream_updates",
            "temperature",
            "temperature_end",
            "disagreement",
            "w_kl",
            "full_size",
        )
        wrong += [name for name in zero if getattr(self, name) < 0]
        wrong += ["population"] if self.population and self.population < LEAST else []
        if wrong:
            raise UsageError(f"The training option {wrong[0]!r} is {getattr(self, wrong[0])}, which is out of range.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> WorldConfig:
        """The reverse of :meth:`to_dict`."""
        return cls(**plain)

    def with_options(self, options: Mapping[str, str]) -> WorldConfig:
        """With values from text; raises :class:`UsageError`."""
        return dataclasses.replace(self, **read_fields(WorldConfig, options))

    def scheduled(self, begin: float, end: float, rounds: int) -> float:
        """A value that goes from ``begin`` to ``end`` in ``schedule`` rounds and stays there."""
        return begin + (end - begin) * min(1.0, rounds / self.schedule)


PRESETS: dict[str, WorldConfig] = {
    # The paper's sizes; its code collects 5,020 random episodes, which --set random_episodes=5020 does.
    "paper": WorldConfig(),
    # Ours: short dreams first, a penalty on what the heads disagree about, walks that end when nothing better comes.
    "tuned": WorldConfig(
        patience=15,
        locations=32,
        ensemble=3,
        disagreement=1.0,
        dream_horizon=8,
        dream_horizon_end=15,
        entropy_weight=0.02,
        prior=1.0,
        rule_prior=4.0,
        random_episodes=4,
        downhill_episodes=4,
    ),
    "graph": WorldConfig(
        worldmodel="graph", patience=10, random_episodes=1, downhill_episodes=1, batch=12, fit_steps=80
    ),
}
# Ours, with a linear controller and CMA-ES in place of PPO.
PRESETS["cma"] = dataclasses.replace(PRESETS["tuned"], controller="cma")


def preset(name: str) -> WorldConfig:
    """The preset of that name; raises :class:`UsageError`."""
    if name not in PRESETS:
        raise UsageError(f"There is no preset {name!r} for world models; there are {', '.join(PRESETS)}.")
    return PRESETS[name]
