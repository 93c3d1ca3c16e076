"""Ways of tuning by name, and their options."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from rlflow.errors import UsageError
from rlflow.tuner.evolution import EvolutionConfig
from rlflow.tuner.proposers import Evolution, Proposer, RandomReplay, Tracks
from rlflow.tuner.tracks import TrackConfig


@dataclass(frozen=True)
class TunerConfig:
    """How to tune. ``subgraphs``: who gets the next round, by ``sw-ucb``, ``gradient`` (always the largest, as Ansor
    does) or ``round-robin``. ``sketches``: by ``sw-ucb`` or ``uniform``. ``proposer``: ``tracks``, ``evolution`` or
    ``random``. ``batch``: programs measured in a round, of which the part ``chance`` is drawn at random. ``cost``: the
    model, ``kernel-ridge`` or ``trees``. ``window``, ``exploration``: of the bandits.
    """

    subgraphs: str = "sw-ucb"
    sketches: str = "sw-ucb"
    proposer: str = "tracks"
    batch: int = 8
    chance: float = 0.1
    cost: str = "kernel-ridge"
    window: int = 256
    exploration: float = 0.25
    tracks: TrackConfig = field(default_factory=TrackConfig)
    evolution: EvolutionConfig = field(default_factory=EvolutionConfig)

    def __post_init__(self) -> None:
        for name, known in _KNOWN.items():
            if getattr(self, name) not in known:
                raise UsageError(f"The option {name} is {getattr(self, name)!r}; expected {', '.join(known)}.")
        if self.batch < 1 or not 0 <= self.chance <= 1:
            raise UsageError(f"A batch of {self.batch} with {self.chance} by chance cannot be measured.")


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
        raise UsageError(f"There is no tuning method {name!r}; there are {', '.join(METHODS)}.")
    return dataclasses.replace(METHODS[name], **changes)  # type: ignore[arg-type]


def unavailable(config: TunerConfig) -> str | None:
    """``None``, or why this cannot be used here."""
    from rlflow import nn
    from rlflow.tuner.program_scores import BoostedTrees

    reason = nn.available() if config.proposer == "tracks" else None
    return reason or (BoostedTrees.available() if config.cost == "trees" else None)


def make_proposer(config: TunerConfig, seed: int) -> Proposer:
    """Who proposes programs. Raises :class:`UsageError` where torch is absent."""
    if config.proposer == "random":
        return RandomReplay()
    if config.proposer == "evolution":
        return Evolution(config.evolution, config.chance)
    reason = unavailable(config)
    if reason is not None:
        raise UsageError(f"HARL's actor cannot be used here: {reason}. The method 'evolutionary' needs nothing.")
    from rlflow.tuner.actor_critic import ActorConfig, Agent

    return Tracks(Agent(ActorConfig(), seed), config.tracks, config.chance)
