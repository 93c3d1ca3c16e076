"""Ways of tuning by name, and their options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rlflow.errors import UsageError
from rlflow.specs import did_you_mean
from rlflow.tuner.evolution import EvolutionConfig
from rlflow.tuner.proposers import Evolution, Picking, Proposer, RandomReplay, Tracks
from rlflow.tuner.tracks import TrackConfig


@dataclass(frozen=True)
class TunerConfig:
    """How to tune. ``subgraphs``: who gets the next round, by ``sw-ucb``, ``gradient`` (always the largest, as Ansor
    does) or ``round-robin``. ``sketches``: by ``sw-ucb`` or ``uniform``. ``proposer``: ``tracks``, ``evolution`` or
    ``random``. ``batch``: programs measured in a round, of which the part ``chance`` is drawn at random, and the others
    by the model's level and ``optimism`` times its spread. ``cost``: the model, ``kernel-ridge``, ``trees`` or
    ``both``. ``transfer``: whether a subgraph's cost model begins with what is known of others of its family.
    ``window``, ``exploration``: of the bandits.
    """

    subgraphs: str = "sw-ucb"
    sketches: str = "sw-ucb"
    proposer: str = "tracks"
    batch: int = 4
    chance: float = 0.05
    optimism: float = 0.5
    cost: str = "kernel-ridge"
    transfer: bool = True
    window: int = 256
    exploration: float = 0.25
    tracks: TrackConfig = field(default_factory=TrackConfig)
    evolution: EvolutionConfig = field(default_factory=EvolutionConfig)

    def __post_init__(self) -> None:
        for name, known in _KNOWN.items():
            if getattr(self, name) not in known:
                raise UsageError(f"The option {name} is {getattr(self, name)!r}; expected {', '.join(known)}.")
        if self.batch < 1 or not 0 <= self.chance <= 1 or not self.optimism >= 0:
            raise UsageError(
                f"A batch of {self.batch} with {self.chance} by chance and an optimism of {self.optimism} cannot be "
                "measured."
            )


_KNOWN = {
    "subgraphs": ("sw-ucb", "gradient", "round-robin"),
    "sketches": ("sw-ucb", "uniform"),
    "proposer": ("tracks", "evolution", "random"),
}
_FIXED = TrackConfig(adaptive=False)
#: The methods that can be compared; all but ``harl`` are baselines, or HARL without one of its parts.
METHODS: dict[str, TunerConfig] = {
    "harl": TunerConfig(),
    "fixed-tracks": TunerConfig(tracks=_FIXED),
    "untrained": TunerConfig(tracks=TrackConfig(train_every=0)),
    "uniform-sketches": TunerConfig(sketches="uniform"),
    "round-robin": TunerConfig(subgraphs="round-robin"),
    "greedy-gradient": TunerConfig(subgraphs="gradient"),
    "evolutionary": TunerConfig(subgraphs="gradient", proposer="evolution"),
    "evolutionary-2048": TunerConfig(
        subgraphs="gradient", proposer="evolution", evolution=EvolutionConfig(population=2048)
    ),
    "random": TunerConfig(subgraphs="round-robin", proposer="random"),
}


def method(name: str, **changes: object) -> TunerConfig:
    """The method of that name with other values of some options; raises :class:`UsageError`."""
    if name not in METHODS:
        raise UsageError(f"There is no tuning method {name!r}. {did_you_mean(name, METHODS)}")
    return dataclasses.replace(METHODS[name], **changes)  # type: ignore[arg-type]


def unavailable(config: TunerConfig) -> str | None:
    """``None``, or why this cannot be used here."""
    from rlflow import nn
    from rlflow.tuner.program_scores import BoostedTrees

    reason = nn.available() if config.proposer == "tracks" else None
    return reason or (BoostedTrees.available() if config.cost != "kernel-ridge" else None)


def make_proposer(config: TunerConfig, seed: int, weights: Mapping[str, np.ndarray] | None = None) -> Proposer:
    """Who proposes programs; an actor begins with ``weights``. Raises :class:`UsageError` where torch is absent."""
    picking = Picking(config.chance, config.optimism)
    if config.proposer == "random":
        return RandomReplay()
    if config.proposer == "evolution":
        return Evolution(config.evolution, picking)
    reason = unavailable(config)
    if reason is not None:
        raise UsageError(f"HARL's actor cannot be used here: {reason}. The method 'evolutionary' needs nothing.")
    from rlflow.tuner.actor_critic import ActorConfig, Agent

    agent = Agent(ActorConfig(), seed)
    if weights is not None:
        agent.load(weights)
    return Tracks(agent, config.tracks, picking)
