"""The training of GO: what annealing decides is imitated first, then graphs in turn, a few an
update.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlflow.agents.go.config import TASKS, GoConfig
from rlflow.agents.go.deciding import UNTRAINED, best_of
from rlflow.agents.go.imitating import demonstrated, demonstrations, imitate
from rlflow.agents.go.lessons import TEST_SEED, GoLesson, drawn_lessons
from rlflow.agents.go.network import GoPolicy, make_go
from rlflow.agents.go.surrogate import learn
from rlflow.agents.go.trained import NO_WORDS, GoCheckpoint
from rlflow.agents.logs import TrainingLog
from rlflow.agents.torch_state import load_optimizer, optimizer_arrays, weights_of
from rlflow.errors import UsageError
from rlflow.nn.checkpoint import known_score, part_of, progress_of, resumed
from rlflow.nn.threads import one_thread
from rlflow.search import StopToken, generator

__all__ = ["TRIED", "GoTraining", "compared", "score_of"]

#: Decisions of a policy that are tried where it is compared with others.
TRIED = 64
#: Evaluations that a policy is judged by while it learns, on each graph and task.
_JUDGED_BY = 14
#: What a policy's weights fit; another training of them has it from them.
_SHAPE = ("hidden", "heads", "graph_layers", "layers", "segment", "gnn", "attention", "gate", "together", "rules")


@dataclass
class GoProgress:
    """How far a training is. ``demonstrated``: evaluations of the searches that were imitated; ``imitated``: passes
    over what these found.
    """

    updates: int = 0
    evaluations: int = 0
    demonstrated: int = 0
    imitated: int = 0
    seconds: float = 0.0
    best_score: float = -math.inf


class GoTraining:
    """A training's state.

    ``families``: to learn on; the best weights are chosen by other graphs of these. ``held_out``: families that nothing
    is learnt from and nothing chosen by; the card says what the policy does on graphs of them. ``tasks``: of
    :data:`TASKS`. ``out``: the checkpoint; ``<out>.last`` is what ``resume`` goes on from. ``start``: a checkpoint
    whose weights to begin with. Raises UsageError for what is unknown.
    """

    def __init__(
        self,
        families: Sequence[str],
        config: GoConfig,
        *,
        out: str | Path | None = None,
        held_out: Sequence[str] = (),
        tasks: Sequence[str] = TASKS,
        seed: int = 0,
        start: GoCheckpoint | None = None,
        resume: bool = False,
    ) -> None:
        if not families:
            raise UsageError("The training was given no family of graphs; give at least one to learn on.")
        both = [one for one in held_out if one in families]
        if both:
            raise UsageError(f"The family {both[0]!r} is both to learn on and held out; it can be one of them.")
        if start is not None:
            config = dataclasses.replace(config, **{name: getattr(start.config, name) for name in _SHAPE})
        self.families, self.tasks, self.config, self.seed = list(families), list(tasks), config, seed
        self.held_out = list(held_out)
        self.out = None if out is None else Path(out)
        self.lessons = drawn_lessons(self.families, config, seed, tasks)
        self.judged_on = drawn_lessons(self.families, config, seed + 1, tasks, count=2)
        self.tested_on = drawn_lessons(self.held_out, config, TEST_SEED, tasks, count=2)
        self.progress, self.rng = GoProgress(), generator(seed)
        self.policy = make_go(config, seed) if start is None else start.policy()
        self.policy.config = config
        self.best_weights = weights_of(self.policy)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=config.lr, eps=1e-5)
        self._shown: list[list[np.ndarray | None]] = []
        self._queue: list[int] = []
        self._tested: list[dict[str, Any]] = []
        if resume:
            self._resume()

    def train(
        self,
        updates: int,
        *,
        judge_every: int = 10,
        logs: str | Path | None = None,
        on_update: Callable[[dict[str, Any]], None] | None = None,
        stop: StopToken | None = None,
    ) -> GoCheckpoint:
        """Train until ``updates`` were made in all, or ``stop`` is set; returns the best checkpoint, which is also
        written to ``out``. Nothing is lost by stopping. ``on_update`` gets the figures of each update, and before the
        first those of each pass of imitation, which have ``imitated`` in them.
        """
        stop = stop or StopToken()
        tell: Callable[[dict[str, Any]], None] = on_update or (lambda figures: None)
        with one_thread(), TrainingLog(None if logs is None else Path(logs)) as log:
            if math.isinf(self.progress.best_score):
                self._judge()
            learning = self._imitated(judge_every, log, tell, stop)
            while learning and self.progress.updates < updates and not stop.stopped:
                figures = self._update(updates)
                log.write("update", self.progress.updates, figures)
                if self.progress.updates % judge_every == 0 or self.progress.updates >= updates:
                    figures["score"] = self._judge()
                    log.write("evaluation", self.progress.updates, {"score": figures["score"]})
                    self.save_last()
                tell(figures)
            self.save_last()
            if learning and self.progress.updates >= updates:
                self._tested = self._compare()
        return self.save_best()

    def _imitated(
        self, judge_every: int, log: TrainingLog, tell: Callable[[dict[str, Any]], None], stop: StopToken
    ) -> bool:
        """Imitate what a search decides about the graphs, or go on with that; whether it came to its end."""
        config, progress = self.config, self.progress
        if not config.demonstrations or progress.updates:
            return True
        begun = time.thread_time()
        for lesson in self.lessons[len(self._shown) :]:
            if stop.stopped:
                return False
            self._shown.append(demonstrated(lesson, config.demonstrations, config.iterations, self.rng))
            progress.demonstrated += sum(demonstrations(task, config.demonstrations) for _, task in lesson.asked())
        while progress.imitated < config.imitate:
            if stop.stopped:
                return False
            self.optimizer.param_groups[0]["lr"] = config.lr * max(0.1, 1.0 - progress.imitated / config.imitate)
            loss = imitate(self.policy, self.optimizer, self.lessons, self._shown, self.rng)
            progress.imitated += 1
            progress.seconds, begun = progress.seconds + time.thread_time() - begun, time.thread_time()
            figures = {"imitated": progress.imitated, "loss": loss, "seconds": progress.seconds}
            if progress.imitated % judge_every == 0 or progress.imitated == config.imitate:
                figures["score"] = self._judge()
            log.write("imitation", progress.imitated, figures)
            self.save_last()
            tell(figures)
        return True

    def _update(self, updates: int) -> dict[str, Any]:
        begun = time.thread_time()
        lessons = [self._next() for _ in range(self.config.batch)]
        left = 1.0 - self.progress.updates / updates
        self.optimizer.param_groups[0]["lr"] = self.config.play_lr * max(0.1, left)
        figures = learn(self.policy, self.optimizer, lessons, self.rng, left=left)
        self.progress.updates += 1
        self.progress.evaluations += self.config.samples * sum(1 for lesson in lessons for _ in lesson.asked())
        self.progress.seconds += time.thread_time() - begun
        title = lessons[0].title if len(lessons) == 1 else f"{len(lessons)} graphs"
        return {**figures, "update": self.progress.updates, "seconds": self.progress.seconds, "graph": title}

    def _next(self) -> GoLesson:
        if not self._queue:  # each graph once, then all in another order
            self._queue = self.rng.permutation(len(self.lessons)).tolist()
        return self.lessons[self._queue.pop()]

    def _judge(self) -> float:
        score = score_of(self.policy, self.judged_on, self.seed)
        if score > self.progress.best_score:
            self.progress.best_score, self.best_weights = score, weights_of(self.policy)
            self.save_best()
        return score

    def _compare(self) -> list[dict[str, Any]]:
        best = GoCheckpoint(self.config, NO_WORDS, self.best_weights).policy()
        return compared({"trained": best, UNTRAINED: make_go(self.config, self.seed)}, self.tested_on, self.seed)

    def save_best(self) -> GoCheckpoint:
        """The best weights, also written to ``out``."""
        found = GoCheckpoint(self.config, NO_WORDS, self.best_weights, card=self._card())
        if self.out is not None:
            found.save(self.out)
        return found

    def save_last(self) -> None:
        """Write ``<out>.last``."""
        if self._last is None:
            return
        extra = {f"best/{name}": array for name, array in self.best_weights.items()}
        extra |= optimizer_arrays(self.optimizer, self.policy, "adam")
        extra |= _by_place("kept", [lesson.kept for lesson in self.lessons])
        extra |= _by_place("shown", self._shown)
        progress = {
            **dataclasses.asdict(self.progress),
            "best_score": known_score(self.progress.best_score),
            "rng": self.rng.bit_generator.state,
            "queue": self._queue,
            "shown": len(self._shown),
            "rewards": [[known_score(one) for one in lesson.best] for lesson in self.lessons],
            "seed": self.seed,
            "models": self._models,
        }
        GoCheckpoint(self.config, NO_WORDS, weights_of(self.policy), extra, progress, self._card()).save(self._last)

    @property
    def _last(self) -> Path | None:
        return None if self.out is None else self.out.with_name(self.out.name + ".last")

    @property
    def _models(self) -> list[str]:
        return [*self.families, *self.tasks, *self.held_out]

    def _card(self) -> dict[str, Any]:
        from rlflow import __version__

        return {
            "rlflow": __version__, "torch": torch.__version__, "families": self.families, "held_out": self.held_out,
            "tasks": self.tasks, "graphs": len(self.lessons), "seed": self.seed, "updates": self.progress.updates,
            "evaluations": self.progress.evaluations, "demonstrated": self.progress.demonstrated,
            "imitated": self.progress.imitated, "seconds": round(self.progress.seconds, 1),
            "score": known_score(self.progress.best_score), "tested": self._tested,
        }  # fmt: skip

    def _resume(self) -> None:
        last = resumed(self._last, GoCheckpoint.load, self.config, self._models, self.seed)
        self.rng.bit_generator.state = last.progress["rng"]
        self._queue = list(last.progress["queue"])
        self.progress = progress_of(GoProgress, last.progress)
        self.policy.load_state_dict({name: torch.from_numpy(array) for name, array in last.weights.items()})
        load_optimizer(self.optimizer, self.policy, "adam", last.extra)
        self.best_weights = part_of(last.extra, "best/")
        tasks = [len(lesson.tasks) for lesson in self.lessons]
        shown = part_of(last.extra, "shown/")
        for number, count in enumerate(tasks[: last.progress["shown"]]):
            self._shown.append([shown.get(f"{number}/{task}") for task in range(count)])
        kept = part_of(last.extra, "kept/")
        for number, (lesson, found) in enumerate(zip(self.lessons, last.progress["rewards"], strict=True)):
            lesson.best = [-math.inf if one is None else one for one in found]
            lesson.kept = [kept.get(f"{number}/{task}") for task in range(tasks[number])]


def _by_place(name: str, rows: Sequence[Sequence[np.ndarray | None]]) -> dict[str, np.ndarray]:
    """Arrays of graphs and tasks under names of their own; there is none where nothing was decided."""
    return {
        f"{name}/{number}/{task}": one
        for number, row in enumerate(rows)
        for task, one in enumerate(row)
        if one is not None
    }


def score_of(policy: GoPolicy, lessons: Sequence[GoLesson], seed: int) -> float:
    """The mean over graphs and tasks of log(usual decision / best of a few of the policy's)."""
    found = []
    for lesson in lessons:
        best = best_of(policy, lesson, _JUDGED_BY, generator(seed))
        found += [math.log(lesson.reference[number] / best[number][0]) for number, _ in lesson.asked()]
    return float(np.mean(found))


def compared(policies: dict[str, GoPolicy], lessons: Sequence[GoLesson], seed: int) -> list[dict[str, Any]]:
    """A row for each graph and task: of each policy, by its name, what the best of 64 decisions is worth in units of a
    usual one; less is better.
    """
    rows = []
    for lesson in lessons:
        with one_thread():
            found = {name: best_of(one, lesson, TRIED, generator(seed)) for name, one in policies.items()}
        rows += [
            {"graph": lesson.title, "nodes": task.nodes, "task": TASKS[number]}
            | {name: round(best[number][0] / lesson.reference[number], 4) for name, best in found.items()}
            for number, task in lesson.asked()
        ]
    return rows
