"""Who proposes the programs that are measured next: HARL's tracks, evolution, or chance. The first two choose among
what they saw by the task's cost model in the same way, and leave a part to chance, so that they differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

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

    def __init__(self, config: EvolutionConfig, picking: Picking) -> None:
        self.config, self.picking = config, picking

    def propose(
        self, task: TuningTask, sketch: int | None, count: int, rng: np.random.Generator
    ) -> list[TensorProgram]:
        seen = evolved(task, sketch, self.config, rng) if task.informed else {}
        return picked(task, sketch, seen, count, self.picking, rng)


class Tracks:
    """The best of what tracks of the actor visited, and a part ``chance`` at random. One agent serves all tasks."""

    by_sketch = True

    def __init__(self, agent: Agent, config: TrackConfig, picking: Picking) -> None:
        self.agent, self.config, self.picking = agent, config, picking

    def propose(
        self, task: TuningTask, sketch: int | None, count: int, rng: np.random.Generator
    ) -> list[TensorProgram]:
        if sketch is None:
            raise AssertionError("tracks walk through one sketch")
        walks = task.informed and not task.subgraph.space.sketches[sketch].fixed
        seen = TrackWalk(task, sketch, self.agent, self.config, rng).run() if walks else {}
        return picked(task, sketch, seen, count, self.picking, rng)


class Picking(NamedTuple):
    """How a batch is chosen among the programs that were seen: the part ``chance`` of it, drawn one by one, at random;
    the others by level and ``optimism`` times its spread.
    """

    chance: float
    optimism: float


def picked(
    task: TuningTask,
    sketch: int | None,
    seen: Collection[TensorProgram],
    count: int,
    picking: Picking,
    rng: np.random.Generator,
) -> list[TensorProgram]:
    """The ``count`` most hopeful programs of ``seen`` that were not measured; what is missing is drawn at random."""
    new = sorted(one for one in seen if one not in task.measured)
    by_score = int((rng.random(count) >= picking.chance).sum())
    chosen = task.most_hopeful(new, by_score, picking.optimism)
    return [*chosen, *task.fresh(rng, count - len(chosen), sketch, chosen)]
