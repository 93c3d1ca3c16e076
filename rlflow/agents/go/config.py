"""Hyper-parameters of GO."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlflow.errors import UsageError
from rlflow.nn.fields import read_fields

#: The tasks, in the order of their attention steps.
TASKS = ("placement", "ordering", "fusing")
BASELINES = ("best", "mean")
#: Of annealing for each decision of the policy's own, where a graph at hand is decided: together they take less time.
MOVES = 8
#: Values that a decision may have at most: devices, or levels of priority.
CHOICES = 8


@dataclass(frozen=True)
class GoConfig:
    """The policy and how it is trained. The values are ours: the paper's are not public.

    ``hidden``: width; ``heads``: of attention; ``graph_layers``: of the graph encoder; ``layers``: of attention before
    the tasks' own steps; ``segment``: nodes of a segment; ``iterations``: T, how often all nodes are decided anew.
    ``gnn``, ``attention``, ``gate``: whether there is a graph encoder, attention between nodes, and the gate that the
    graph conditions; without one of them the rest stays as it is. ``together``: whether a task's step hears what the
    task before it made. ``rules``: whether the first iteration is told the best placement by rule.

    ``demonstrations``: evaluations of a search for each graph and task that the policy imitates first, 0 for none; of
    placements ten times as many, because these take a tenth of the time;
    ``imitate``: passes over these, a step for each graph. ``batch``: graphs of an update. ``lr``: Adam's, which falls
    to a tenth over the passes; ``play_lr``: that after these, which falls likewise. ``clip``: of each node's ratio;
    ``epochs``: passes over the decisions of an update; ``samples``: of them for each graph; ``entropy``: weight of this
    term, which falls to nothing in the course of a training; ``grad_norm``: gradients are cut to. ``baseline``: what a
    reward is compared with, the best that was seen of the graph (``best``) or the update's own mean (``mean``).
    ``replay``: whether the best decisions that were seen of a graph are among each update's.
    ``pool``: graphs of each family to learn on; ``smallest``, ``largest``: about how many nodes they have.
    """

    hidden: int = 64
    heads: int = 4
    graph_layers: int = 2
    layers: int = 2
    segment: int = 128
    iterations: int = 3
    gnn: bool = True
    attention: bool = True
    gate: bool = True
    together: bool = True
    rules: bool = True
    demonstrations: int = 1000
    imitate: int = 60
    batch: int = 4
    lr: float = 1e-3
    play_lr: float = 2e-4
    clip: float = 0.2
    epochs: int = 3
    samples: int = 16
    entropy: float = 0.003
    grad_norm: float = 0.5
    baseline: str = "mean"
    replay: bool = True
    pool: int = 6
    smallest: int = 50
    largest: int = 150

    def __post_init__(self) -> None:
        whole = ("hidden", "heads", "graph_layers", "layers", "segment", "iterations", "epochs", "pool", "smallest",
                 "batch", "imitate")  # fmt: skip
        wrong = [name for name in whole if getattr(self, name) < 1]
        wrong += [name for name in ("lr", "play_lr", "clip", "grad_norm") if not getattr(self, name) > 0]
        wrong += [name for name in ("entropy", "demonstrations") if getattr(self, name) < 0]
        wrong += ["samples"] if self.samples < 2 else []
        wrong += ["largest"] if self.largest < self.smallest else []
        wrong += ["heads"] if self.heads > 0 and self.hidden % self.heads else []
        wrong += ["baseline"] if self.baseline not in BASELINES else []
        if wrong:
            raise UsageError(f"The training option {wrong[0]!r} is {getattr(self, wrong[0])}, which is out of range.")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> GoConfig:
        """The reverse of :meth:`to_dict`."""
        return cls(**plain)

    def with_options(self, options: Mapping[str, str]) -> GoConfig:
        """With values from text. Raises :class:`UsageError`."""
        return dataclasses.replace(self, **read_fields(GoConfig, options))
