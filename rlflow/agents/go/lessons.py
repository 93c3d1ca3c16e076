"""Graphs that GO learns on and is judged by: a view of each, and the tasks about it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from rlflow.agents.go.config import CHOICES, TASKS, GoConfig
from rlflow.agents.go.network import UNDECIDED, GraphTensors
from rlflow.errors import UsageError
from rlflow.placement.decisions import DecisionTask, GraphView
from rlflow.placement.fusing import FusingTask
from rlflow.placement.ordering import OrderingTask
from rlflow.placement.rules_of_thumb import ALL_RULES, best_by_rule
from rlflow.placement.sketches import FAMILIES, NetworkSketch, drawn_sketch
from rlflow.placement.task import PlacementTask
from rlflow.placement.work import Devices

__all__ = ["TEST_SEED", "GoLesson", "alike", "drawn_lessons", "lesson_of", "renamed", "rewards"]

#: Seed of graphs that nothing is learnt from, and no weights are chosen by.
TEST_SEED = 1000
#: Scores whose ratio is below this are level.
_LEVEL = 1.0 + 1e-9
#: A decision that is worth less teaches as this one does.
WORST_REWARD = -10.0
#: Of the links between devices of drawn graphs, bytes a second, and seconds. A device of :mod:`rlflow.price.analytic`
#: does 60 to 600 operations while a byte moves; between accelerators it is about a thousand.
_BANDWIDTHS, _LATENCY = (1e9, 3e8, 1e8), 1e-5


class ToldFirst(NamedTuple):
    """What the first iteration is told about a task: ``decided`` int64 [n] by place, ``UNDECIDED`` where that is
    nothing; what that is worth, infinite for nothing; and the evaluations that it took to choose it.
    """

    decided: torch.Tensor
    score: float = np.inf
    spent: int = 0


@dataclass
class GoLesson:
    """A graph and the first so many of :data:`TASKS`; ``None`` for one that is not asked about.

    ``reference``: of each task what a usual decision is worth, in whose units rewards are. ``best``: the highest reward
    so far; ``kept``: the decisions of all iterations that it was given for, int64 [T, n] by place. ``start``: of each
    task what the first iteration is told.
    """

    title: str
    view: GraphView
    tasks: list[DecisionTask | None]
    reference: list[float]
    about: list[torch.Tensor]
    graph: GraphTensors
    start: list[ToldFirst]
    best: list[float] = field(default_factory=list)
    kept: list[np.ndarray | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.best = self.best or [-np.inf] * len(self.tasks)
        self.kept = self.kept or [None] * len(self.tasks)

    @property
    def begun(self) -> list[torch.Tensor]:
        """What the first iteration is told about each task, int64 [n] by place."""
        return [one.decided for one in self.start]

    def keep(self, number: int, at_places: np.ndarray, earned: float, iterations: int) -> None:
        """Decisions int64 [n] that nobody drew, as if every iteration had made them, where they are the best so far."""
        if earned > self.best[number]:
            self.best[number] = earned
            self.kept[number] = np.repeat(at_places[None], iterations, axis=0)

    def go_on(self) -> None:
        """From now on the first iteration is told the best that was seen last, where that is no worse."""
        for number, _ in self.asked():
            kept, score = self.kept[number], self.best[number] ** 2 * self.reference[number]
            if kept is not None and score <= self.start[number].score * _LEVEL:
                self.start[number] = ToldFirst(torch.from_numpy(kept[-1].copy()), score, self.start[number].spent)

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
    rules: int | None = None,
    rewarded: bool = True,
) -> GoLesson:
    """A lesson on tasks in the order of :data:`TASKS`. ``rules``: of what so many of them decide the policy is told the
    best first (:func:`best_by_rule`), nothing where it is ``None``. Without ``rewarded`` nothing else is evaluated, and
    nothing can be learnt from it. Raises UsageError for a task of more than 8 choices.
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
    begun = [_start(task, view, rules) for task in tasks]
    return GoLesson(title, view, list(tasks), reference, about, GraphTensors.of(view), begun)


def _start(task: DecisionTask | None, view: GraphView, rules: int | None) -> ToldFirst:
    """The best by rule; equal devices have their numbers in the order in which they appear."""
    nothing = np.full(view.nodes, UNDECIDED, np.int64)
    if task is None or not view.nodes or rules is None:
        return ToldFirst(torch.from_numpy(nothing))
    ruled = best_by_rule(task, rules)
    row = ruled.decisions[view.order].astype(np.int64)
    row = renamed(row, nothing, task.choices) if alike(task) else row
    return ToldFirst(torch.from_numpy(row), ruled.score, ruled.spent)


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
    agree, there = np.zeros((choices, choices), np.int64), before != UNDECIDED
    np.add.at(agree, (shown[there], before[there]), 1)
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
    title: str, sketch: NetworkSketch, devices: Devices, tasks: Sequence[str] = TASKS, *, rules: int | None = None
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
    return lesson_of(title, GraphView.of(work, devices, sketch.products), chosen, rules=rules)


def drawn_lessons(
    families: Sequence[str], config: GoConfig, seed: int, tasks: Sequence[str] = TASKS, count: int | None = None
) -> list[GoLesson]:
    """``count`` (default: ``config.pool``) lessons of each family, on two or four equal devices, with links of three
    speeds; a family and a seed give the same ones whatever else is drawn. Raises UsageError for an unknown family or
    task.
    """
    unknown = [name for name in tasks if name not in TASKS]
    if unknown or not tasks:
        raise UsageError(f"There is no task {(unknown or [''])[0]!r}; there are {', '.join(TASKS)}.")
    found, rules = [], ALL_RULES if config.rules else None
    for family in families:
        if family not in FAMILIES:
            raise UsageError(f"There is no family {family!r} of graphs; there are {', '.join(FAMILIES)}.")
        rng = np.random.default_rng([seed, list(FAMILIES).index(family)])
        for number in range(config.pool if count is None else count):
            sketch = drawn_sketch(family, int(rng.integers(config.smallest, config.largest + 1)), rng)
            devices = Devices.alike((2, 4)[number % 2], bandwidth=_BANDWIDTHS[number % 3], latency=_LATENCY)
            found.append(sketch_lesson(f"{family} {number}", sketch, devices, tasks, rules=rules))
    return found
