"""Who proposes the programs that are measured next: HARL's tracks, evolution, or chance. All rank what they saw by the
task's cost model and leave a part to chance, so that they differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rlflow.tuner.evolution import EvolutionConfig, evolved
from rlflow.tuner.spaces import TensorProgram
from rlflow.tuner.tasks import TuningTask
from rlflow.tuner.tracks import TrackConfig, TrackWalk

if TYPE_CHECKING:
    from rlflow.tuner.actor_critic import Agent


class Proposer(Protocol):
    """``by_sketch``: whether it works on one sketch at a time, which somebody has to choose."""

    by_sketch: bool

    def propose(
        self, task: TuningTask, sketch: int | None, count: int, rng: np.random.Generator
    ) -> list[TensorProgram]:
        """At most ``count`` programs that were not measured; fewer only where there are no more."""
        ...


class RandomReplay:
    """Programs that are drawn uniformly."""

    by_sketch = False

    def propose(
        self, task: TuningTask, sketch: int | None, count: int, rng: np.random.Generator
    ) -> list[TensorProgram]:
        return task.fresh(rng, count, sketch, [])


class Evolution:
    """The best of some generations, and a part ``chance`` at random."""

    by_sketch = False

    def __init__(self, config: EvolutionConfig, chance: float) -> None:
        self.config, self.chance = config, chance

    def propose(
        self, task: TuningTask, sketch: int | None, count: int, rng: np.random.Generator
    ) -> list[TensorProgram]:
        seen = evolved(task, sketch, self.config, rng) if task.informed else {}
        return picked(task, sketch, seen, count, self.chance, rng)


class Tracks:
    """The best of what tracks of the actor visited, and a part ``chance`` at random. One agent serves all tasks."""

    by_sketch = True

    def __init__(self, agent: Agent, config: TrackConfig, chance: float) -> None:
        self.agent, self.config, self.chance = agent, config, chance

    def propose(
        self, task: TuningTask, sketch: int | None, count: int, rng: np.random.Generator
    ) -> list[TensorProgram]:
        if sketch is None:
            raise AssertionError("tracks walk through one sketch")
        walks = task.informed and not task.subgraph.space.sketches[sketch].fixed
        seen = TrackWalk(task, sketch, self.agent, self.config, rng).run() if walks else {}
        return picked(task, sketch, seen, count, self.chance, rng)


def picked(
    task: TuningTask,
    sketch: int | None,
    seen: Mapping[TensorProgram, float],
    count: int,
    chance: float,
    rng: np.random.Generator,
) -> list[TensorProgram]:
    """The ``count`` programs of ``seen`` with the highest scores that were not measured; the part ``chance``, drawn one
    by one, at random instead, as is what is missing.
    """
    ranked = sorted((one for one in seen if one not in task.measured), key=lambda one: (-seen[one], one))
    by_score = int((rng.random(count) >= chance).sum())
    chosen = ranked[:by_score]
    return [*chosen, *task.fresh(rng, count - len(chosen), sketch, chosen)]
