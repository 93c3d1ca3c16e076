"""Learning from searches, before the policy's own decisions earn anything: behavioural cloning.

A search decides about each graph of the training once. The policy then learns to decide so in every iteration,
whatever it drew in the one before. Which of several equal devices is which means nothing, so a demonstrated placement
is renamed to what agrees best with the iteration before.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rlflow.agents.go.lessons import GoLesson, rewards
from rlflow.agents.go.network import UNDECIDED, GoPolicy
from rlflow.agents.go.surrogate import draw
from rlflow.placement import PLACERS, PlacementTask
from rlflow.placement.decisions import DecisionTask
from rlflow.placement.level_search import AnnealedLevels

__all__ = ["demonstrated", "imitate", "renamed"]

#: Decisions that are drawn of each graph to learn to go on from.
_DRAWN = 4


def demonstrated(
    lesson: GoLesson, evaluations: int, iterations: int, rng: np.random.Generator
) -> list[np.ndarray | None]:
    """What annealing decides about a graph with so many evaluations a task, int64 [n] by place; ``None`` for a task
    that is not asked about. It counts as seen: the lesson keeps it where it is the best so far, in all ``iterations``.
    """
    found: list[np.ndarray | None] = [None] * len(lesson.tasks)
    for number, task in lesson.asked():
        row = _searched(task, evaluations, rng)
        at_places = row[lesson.view.order].astype(np.int64)
        if isinstance(task, PlacementTask) and np.ptp(task.devices.speed) == 0:
            at_places = renamed(at_places, at_places * 0 + UNDECIDED, task.choices)
        found[number] = at_places
        earned = float(rewards(task.scores(row[None].astype(np.int32)), lesson.reference[number])[0])
        if earned > lesson.best[number]:
            lesson.best[number] = earned
            lesson.kept[number] = np.repeat(at_places[None], iterations, axis=0)
    return found


def _searched(task: DecisionTask, evaluations: int, rng: np.random.Generator) -> np.ndarray:
    if isinstance(task, PlacementTask):
        return PLACERS.make("annealing", evaluations=evaluations).decide(task, rng)
    return AnnealedLevels(evaluations).decide(task, rng)[1]


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
    drawn = draw(policy, lesson, _DRAWN, rng)
    before = [torch.cat([torch.full_like(one[:1], UNDECIDED), one[:-1]]).flatten(0, 1) for one in drawn.decided]
    logits = policy(lesson.graph, policy.encode(lesson.graph), before, lesson.about)
    losses = []
    for number, task in lesson.asked():
        target = _targets(task, shown[number], before[number])
        losses.append(functional.cross_entropy(logits[number][..., : task.choices].flatten(0, 1), target.flatten()))
    return torch.stack(losses).mean()


def _targets(task: DecisionTask, shown: np.ndarray | None, before: Tensor) -> Tensor:
    """What was shown, for each row of ``before`` int64 [b, n]."""
    assert shown is not None
    if not isinstance(task, PlacementTask) or np.ptp(task.devices.speed) > 0:
        return torch.from_numpy(shown).expand(before.shape)
    return torch.from_numpy(np.stack([renamed(shown, row, task.choices) for row in before.numpy()]))
