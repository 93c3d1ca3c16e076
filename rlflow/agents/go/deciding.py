"""How GO decides about a graph at hand: by what a policy draws and by annealing's moves, in turn."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import torch

from rlflow.agents.go.config import GoConfig
from rlflow.agents.go.lessons import GoLesson, lesson_of, rewards
from rlflow.agents.go.network import GoPolicy, make_go
from rlflow.agents.go.surrogate import draw, learn, some_parts
from rlflow.agents.go.trained import SHIPPED, load_go
from rlflow.nn.threads import one_thread
from rlflow.placement import PlacementTask
from rlflow.placement.annealed_walk import COLDEST, HOTTEST, AnnealedWalk, cooled
from rlflow.placement.decisions import GraphView
from rlflow.placement.rules_of_thumb import ALL_RULES

__all__ = ["UNTRAINED", "best_of", "decided", "fine_tuned", "policy_of"]

#: What stands for fresh weights where a checkpoint is named.
UNTRAINED = "untrained"
_FRESH_SEED = 0
#: Decisions that are drawn side by side before the best so far is looked at again.
_AT_ONCE = 4


class _Beside:
    """Annealing of each task, which goes on from the best that is known, and which others go on from."""

    def __init__(self, lesson: GoLesson) -> None:
        self.lesson = lesson
        self.walks = {
            number: AnnealedWalk(task, self._by_node(lesson.start[number].decided.numpy()), lesson.start[number].score)
            for number, task in lesson.asked()
        }

    def _by_node(self, at_places: np.ndarray) -> np.ndarray:
        return self.lesson.view.told(at_places.astype(np.int32))

    def hear(self, number: int, at_places: np.ndarray) -> None:
        """The best of decisions int [k, n] of one task is gone on from, where it is no worse; k evaluations."""
        rows = self._by_node(at_places)
        scores = self.walks[number].task.scores(rows)
        best = int(np.argmin(scores))
        self.walks[number].hear(rows[best], float(scores[best]))

    def move(self, moves: int, begun: float, ended: float, rng: np.random.Generator) -> None:
        """So many moves of each task, while so much of the search goes by, from 0 to 1."""
        for walk in self.walks.values():
            for at in range(0 if walk.stuck else moves):
                share = begun + (ended - begun) * at / moves
                walk.step(walk.score * cooled(HOTTEST, COLDEST, share), rng)

    def best(self, number: int) -> np.ndarray:
        """The best decisions so far, int64 [n] by place."""
        return self.walks[number].found[self.lesson.view.order].astype(np.int64)


def best_of(
    policy: GoPolicy, lesson: GoLesson, evaluations: int, rng: np.random.Generator, *, moves: int = 0
) -> list[tuple[float, np.ndarray]]:
    """(score, decisions int32 [n] by node) of each task that is asked about: the best of what the policy is told first,
    of its likeliest decisions, of what it draws for all nodes or for a part, told the best so far, and of ``moves`` of
    annealing for each of these. ``evaluations`` in all, of which the policy has at least one.
    """
    beside, begun = _Beside(lesson), list(lesson.begun)
    whole = left = max(1, evaluations - max(one.spent for one in lesson.start))
    while left > 0:
        first = left == whole
        count = 1 if first else min(left, _AT_ONCE)
        free = None if first else some_parts(begun, count, rng)
        drawn = draw(policy, lesson, count, rng, likeliest=first, start=begun, free=free)
        for number, _ in lesson.asked():
            beside.hear(number, drawn.decided[number][-1].numpy())
        before, moved = left - count, min(left - count, count * moves)
        left = before - moved
        beside.move(moved, 1.0 - before / whole, 1.0 - left / whole, rng)
        for number, _ in lesson.asked():
            begun[number] = torch.from_numpy(beside.best(number))
    return [
        (beside.walks[number].best, beside.walks[number].found) if number in beside.walks else _nothing(lesson, number)
        for number in range(len(lesson.tasks))
    ]


def _nothing(lesson: GoLesson, number: int) -> tuple[float, np.ndarray]:
    start = lesson.start[number]
    return start.score, lesson.view.told(start.decided.numpy().astype(np.int32))


def fine_tuned(policy: GoPolicy, lesson: GoLesson, steps: int, rng: np.random.Generator, *, moves: int = 0) -> GoPolicy:
    """A copy of the policy after ``steps`` updates on one graph, each told the best so far, and of one epoch: more of
    them find no more. After each come ``moves`` of annealing for each decision that was drawn. What was best on the way
    is kept in the lesson.
    """
    found = copy.deepcopy(policy)
    config = found.config = dataclasses.replace(policy.config, epochs=1)
    optimizer = torch.optim.Adam(found.parameters(), lr=config.lr, eps=1e-5)
    beside = _Beside(lesson)
    for step in range(steps):
        learn(found, optimizer, [lesson], rng)
        if moves:
            _go_on_beside(lesson, beside, config, moves, (step / steps, (step + 1) / steps), rng)
        lesson.go_on()
    return found


def _go_on_beside(
    lesson: GoLesson,
    beside: _Beside,
    config: GoConfig,
    moves: int,
    shares: tuple[float, float],
    rng: np.random.Generator,
) -> None:
    """Annealing hears what the policy found in a step, moves, and tells the lesson what it found."""
    for number, _ in lesson.asked():
        kept = lesson.kept[number]
        if kept is not None:
            score = lesson.best[number] ** 2 * lesson.reference[number]
            beside.walks[number].hear(lesson.view.told(kept[-1]), score)
    beside.move(config.samples * moves, *shares, rng)
    for number, _ in lesson.asked():
        earned = rewards(np.array([beside.walks[number].best]), lesson.reference[number])
        lesson.keep(number, beside.best(number), float(earned[0]), config.iterations)


def policy_of(checkpoint: str) -> GoPolicy:
    """The policy of a file (default: the one that ships), or fresh weights for ``untrained``."""
    return make_go(GoConfig(), _FRESH_SEED) if checkpoint == UNTRAINED else load_go(checkpoint or SHIPPED)


def decided(
    task: PlacementTask, evaluations: int, steps: int, moves: int, checkpoint: str, rng: np.random.Generator
) -> np.ndarray:
    """A placement, int32 [n], as :class:`rlflow.agents.go.placer.LearnedPlacement` says."""
    policy, view = policy_of(checkpoint), GraphView.of(task.work, task.devices)
    rules = min(ALL_RULES, evaluations - 1) if policy.config.rules else None
    lesson = lesson_of("the graph at hand", view, [task], rules=rules, rewarded=steps > 0)
    with one_thread():
        if steps:
            policy = fine_tuned(policy, lesson, steps, rng, moves=moves)
        score, found = best_of(policy, lesson, evaluations, rng, moves=moves)[0]
    kept = lesson.kept[0]
    if kept is not None:
        row = view.told(kept[-1]).astype(np.int32)
        found = row if task.scores(row[None])[0] < score else found
    return found
