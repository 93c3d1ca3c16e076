"""Learning from searches, before the policy's own decisions earn anything: behavioural cloning.

A search decides about each graph of the training once. The policy then learns to decide so in every iteration,
whatever it drew in the one before. Which of several equal devices is which means nothing, so a demonstrated placement
is renamed to what agrees best with the iteration before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rlflow.agents.go.lessons import GoLesson, alike, renamed, rewards
from rlflow.agents.go.network import UNDECIDED, GoPolicy
from rlflow.agents.go.surrogate import before_each, draw, some_parts
from rlflow.placement import PLACERS, PlacementTask
from rlflow.placement.decisions import DecisionTask
from rlflow.placement.level_search import AnnealedLevels
from rlflow.placement.rules_of_thumb import by_rule

__all__ = ["demonstrated", "imitate"]

#: Decisions that are drawn of each graph to learn to go on from.
_DRAWN = 4


def demonstrated(
    lesson: GoLesson, evaluations: int, iterations: int, rng: np.random.Generator
) -> list[np.ndarray | None]:
    """What annealing decides about a graph with :func:`demonstrations` of so many evaluations, int64 [n] by place;
    ``None`` for a task that is not asked about. It counts as seen: the lesson keeps it where it is the best so far, in
    all ``iterations``.
    """
    found: list[np.ndarray | None] = [None] * len(lesson.tasks)
    for number, task in lesson.asked():
        row = _searched(task, demonstrations(task, evaluations), rng)
        at_places = row[lesson.view.order].astype(np.int64)
        if alike(task):
            at_places = renamed(at_places, at_places * 0 + UNDECIDED, task.choices)
        found[number] = at_places
        earned = float(rewards(task.scores(row[None].astype(np.int32)), lesson.reference[number])[0])
        lesson.keep(number, at_places, earned, iterations)
    return found


def demonstrations(task: DecisionTask, evaluations: int) -> int:
    """Evaluations of a task's search, as :class:`rlflow.agents.go.config.GoConfig` says."""
    return evaluations * (10 if isinstance(task, PlacementTask) else 1)


def _searched(task: DecisionTask, evaluations: int, rng: np.random.Generator) -> np.ndarray:
    if isinstance(task, PlacementTask):
        return PLACERS.make("annealing", evaluations=evaluations).decide(task, rng)
    return AnnealedLevels(evaluations).decide(task, rng, tuple(by_rule(task, evaluations - 1)))[1]


def imitate(
    policy: GoPolicy,
    optimizer: torch.optim.Optimizer,
    lessons: Sequence[GoLesson],
    shown: Sequence[Sequence[np.ndarray | None]],
    rng: np.random.Generator,
) -> float:
    """A pass over all graphs, a step for each; returns the mean cross entropy (nats a node)."""
    losses = []
    for number in rng.permutation(len(lessons)).tolist():
        optimizer.zero_grad(set_to_none=True)
        loss = imitation_loss(policy, lessons[number], shown[number], rng)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), policy.config.grad_norm)
        optimizer.step()
        losses.append(float(loss.detach()))
    return float(np.mean(losses))


def imitation_loss(
    policy: GoPolicy, lesson: GoLesson, shown: Sequence[np.ndarray | None], rng: np.random.Generator
) -> Tensor:
    """The mean cross entropy of what was shown, over tasks, nodes, iterations and what was drawn before them."""
    start = [_told_first(lesson, number, shown[number], rng) for number in range(len(lesson.tasks))]
    free = some_parts(start, _DRAWN, rng, whole=2)
    drawn = draw(policy, lesson, _DRAWN, rng, start=start, free=free)
    before = before_each(drawn.first, drawn.decided)
    logits = policy(lesson.graph, policy.encode(lesson.graph), before, lesson.about)
    losses = []
    for number, task in lesson.asked():
        target = _targets(task, shown[number], before[number])
        losses.append(functional.cross_entropy(logits[number][..., : task.choices].flatten(0, 1), target.flatten()))
    return torch.stack(losses).mean()


def _told_first(lesson: GoLesson, number: int, shown: np.ndarray | None, rng: np.random.Generator) -> Tensor:
    """What the first iteration is told, int64 [drawn, n]: in the first row what the lesson says, in the others what was
    shown with some of it spoiled, so that the policy learns to mend. Where numbers of choices mean nothing, each
    row has them otherwise, so that it learns to go on from what it is told, and not what each node was given.
    """
    task, start = lesson.tasks[number], lesson.start[number].decided
    if task is None or shown is None:
        return start.expand(_DRAWN, -1)
    rows = [start.numpy(), *(spoiled(shown, task.choices, rng) for _ in range(_DRAWN - 1))]
    return torch.from_numpy(np.stack([_under_other_names(task, row, rng) for row in rows]))


def spoiled(shown: np.ndarray, choices: int, rng: np.random.Generator) -> np.ndarray:
    """Decisions int64 [n] of which up to a half are drawn anew, some one by one and some in runs of equal ones."""
    found, n = shown.copy(), len(shown)
    single = rng.random(n) < rng.uniform(0.0, 0.3)
    found[single] = rng.integers(0, choices, int(single.sum()))
    for _ in range(int(rng.integers(0, 4))):
        begin, length = int(rng.integers(n)), int(rng.integers(1, max(2, n // 8 + 1)))
        found[begin : begin + length] = rng.integers(choices)
    return found


def _under_other_names(task: DecisionTask, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if not alike(task) or (row == UNDECIDED).all():
        return row
    return rng.permutation(task.choices)[row]


def _targets(task: DecisionTask, shown: np.ndarray | None, before: Tensor) -> Tensor:
    """What was shown, for each row of ``before`` int64 [b, n]."""
    assert shown is not None
    if not alike(task):
        return torch.from_numpy(shown).expand(before.shape)
    return torch.from_numpy(np.stack([renamed(shown, row, task.choices) for row in before.numpy()]))
