"""Graphs that GO learns on and is judged by: a view of each, and the tasks about it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rlflow.agents.go.config import CHOICES, TASKS, GoConfig
from rlflow.agents.go.network import UNDECIDED, Encoded, GraphTensors
from rlflow.errors import UsageError
from rlflow.placement import PLACERS
from rlflow.placement.decisions import DecisionTask, GraphView
from rlflow.placement.fusing import FusingTask
from rlflow.placement.ordering import OrderingTask
from rlflow.placement.sketches import FAMILIES, NetworkSketch, drawn_sketch
from rlflow.placement.task import PlacementTask
from rlflow.placement.work import Devices

__all__ = ["TEST_SEED", "GoLesson", "alike", "drawn_lessons", "lesson_of", "renamed", "rewards"]

#: Seed of graphs that nothing is learnt from, and no weights are chosen by.
TEST_SEED = 1000
#: A decision that is worth less teaches as this one does.
WORST_REWARD = -10.0
#: Of the link between devices of drawn graphs.
_BANDWIDTH, _LATENCY = 4e9, 1e-5


@dataclass
class GoLesson:
    """A graph and the first so many of :data:`TASKS`; ``None`` for one that is not asked about.

    ``reference``: of each task what a usual decision is worth, in whose units rewards are. ``best``: the highest reward
    so far; ``kept``: the decisions of all iterations that it was given for, int64 [T, n] by place. ``start``: of each
    task what the first iteration is told, int64 [n] by place, ``UNDECIDED`` where that is nothing.
    """

    title: str
    view: GraphView
    tasks: list[DecisionTask | None]
    reference: list[float]
    about: list[torch.Tensor]
    graph: GraphTensors
    start: list[torch.Tensor]
    best: list[float] = field(default_factory=list)
    kept: list[np.ndarray | None] = field(default_factory=list)
    encoded: Encoded | None = None

    def __post_init__(self) -> None:
        self.best = self.best or [-np.inf] * len(self.tasks)
        self.kept = self.kept or [None] * len(self.tasks)

    def asked(self) -> Iterator[tuple[int, DecisionTask]]:
        """The tasks that are asked about, with their numbers."""
        for number, task in enumerate(self.tasks):
            if task is not None:
                yield number, task


def lesson_of(
    title: str,
    view: GraphView,
    tasks: Sequence[DecisionTask | None],
    *,
    start: bool = False,
    rewarded: bool = True,
) -> GoLesson:
    """A lesson on tasks in the order of :data:`TASKS`. ``start``: as in :class:`GoConfig`. Without ``rewarded`` nothing
    is evaluated, and nothing can be learnt from it. Raises UsageError for a task of more than 8 choices.
    """
    about, reference = [], []
    for task in tasks:
        count = CHOICES if task is None else task.choices
        if count > CHOICES:
            raise UsageError(f"GO decides between {CHOICES} choices at most; a task has {count}.")
        speed = task.devices.speed if isinstance(task, PlacementTask) else np.ones(count)
        shares = np.zeros(CHOICES, np.float32)
        shares[:count] = speed / speed.sum()
        about.append(torch.from_numpy(shares))
        reference.append(float(np.min(task.scores(_usual(task)))) if task is not None and rewarded else 1.0)
    begun = [_start(task if start else None, view) for task in tasks]
    return GoLesson(title, view, list(tasks), reference, about, GraphTensors.of(view), begun)


def _start(task: DecisionTask | None, view: GraphView) -> torch.Tensor:
    """HEFT's placement by place; equal devices have their numbers in the order in which they appear."""
    nothing = np.full(view.nodes, UNDECIDED, np.int64)
    if not isinstance(task, PlacementTask) or not view.nodes:
        return torch.from_numpy(nothing)
    row = PLACERS.make("heft").decide(task, np.random.default_rng(0))[view.order].astype(np.int64)
    return torch.from_numpy(renamed(row, nothing, task.choices) if alike(task) else row)


def alike(task: DecisionTask) -> bool:
    """Whether it means nothing which of the choices has which number: equal devices with equal links."""
    if not isinstance(task, PlacementTask):
        return False
    devices, between = task.devices, ~np.eye(task.choices, dtype=bool)
    links = np.stack([devices.latency[between], devices.per_byte[between]])
    rows = (task.seconds, devices.memory[None], links)
    return all(bool((row == row[:, :1]).all()) for row in rows)


def renamed(shown: np.ndarray, before: np.ndarray, choices: int) -> np.ndarray:
    """Decisions int64 [n] with the choices' numbers changed so that most nodes keep what they have in ``before``; where
    nothing was decided before, numbers are given in the order in which they appear.
    """
    if (before == UNDECIDED).all():
        first = list(dict.fromkeys(shown.tolist()))
        order = np.zeros(choices, np.int64)
        order[first] = np.arange(len(first))
        return order[shown]
    agree = np.zeros((choices, choices), np.int64)
    np.add.at(agree, (shown, before), 1)
    if choices <= 4:
        ways = itertools.permutations(range(choices))
        best = max(ways, key=lambda way: int(agree[np.arange(choices), list(way)].sum()))
        return np.array(best, np.int64)[shown]
    left, order = agree.astype(float), np.zeros(choices, np.int64)
    for _ in range(choices):  # the pairs that agree most, one after the other
        row, column = np.unravel_index(int(left.argmax()), left.shape)
        order[row] = column
        left[row], left[:, column] = -1.0, -1.0
    return order[shown]


def _usual(task: DecisionTask) -> np.ndarray:
    """Decisions whose worth is the unit of rewards: each device alone; levels that are all equal."""
    if isinstance(task, PlacementTask):
        return np.repeat(np.arange(task.choices, dtype=np.int32)[:, None], task.nodes, axis=1)
    return np.ones((1, task.nodes), np.int32)


def rewards(scores: np.ndarray, reference: float) -> np.ndarray:
    """The negative root of each score in units of ``reference``, at least -10; [k] to [k]."""
    return np.maximum(-np.sqrt(np.maximum(scores, 0.0) / max(reference, 1e-30)), WORST_REWARD)


def sketch_lesson(
    title: str, sketch: NetworkSketch, devices: Devices, tasks: Sequence[str] = TASKS, *, start: bool = False
) -> GoLesson:
    """The tasks named ``tasks`` about one network."""
    work = sketch.work()
    makers: dict[str, Any] = {
        "placement": lambda: PlacementTask(work, devices),
        "ordering": lambda: OrderingTask(sketch.flow(), CHOICES),
        "fusing": lambda: FusingTask(sketch, CHOICES),
    }
    last = max(TASKS.index(name) for name in tasks)
    chosen = [makers[name]() if name in tasks else None for name in TASKS[: last + 1]]
    return lesson_of(title, GraphView.of(work, devices, sketch.products), chosen, start=start)


def drawn_lessons(
    families: Sequence[str], config: GoConfig, seed: int, tasks: Sequence[str] = TASKS, count: int | None = None
) -> list[GoLesson]:
    """``count`` (default: ``config.pool``) lessons of each family, on two or four equal devices; a family and a seed
    give the same ones whatever else is drawn. Raises UsageError for an unknown family or task.
    """
    unknown = [name for name in tasks if name not in TASKS]
    if unknown or not tasks:
        raise UsageError(f"There is no task {(unknown or [''])[0]!r}; there are {', '.join(TASKS)}.")
    found = []
    for family in families:
        if family not in FAMILIES:
            raise UsageError(f"There is no family {family!r} of graphs; there are {', '.join(FAMILIES)}.")
        rng = np.random.default_rng([seed, list(FAMILIES).index(family)])
        for number in range(config.pool if count is None else count):
            sketch = drawn_sketch(family, int(rng.integers(config.smallest, config.largest + 1)), rng)
            devices = Devices.alike((2, 4)[number % 2], bandwidth=_BANDWIDTH, latency=_LATENCY)
            found.append(sketch_lesson(f"{family} {number}", sketch, devices, tasks, start=config.start))
    return found
