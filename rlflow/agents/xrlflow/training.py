"""A training's state, and what is kept of it: the best weights, and all that a resumed training goes on with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlflow.agents.torch_state import card_of, load_optimizer, optimizer_arrays, weights_of
from rlflow.agents.xrlflow.config import TrainConfig
from rlflow.agents.xrlflow.trained import PolicyCheckpoint
from rlflow.env.spec import ProblemSpec
from rlflow.errors import UsageError
from rlflow.nn.checkpoint import known_score, part_of, progress_of, resumed
from rlflow.nn.policy import make_policy
from rlflow.nn.token_vocabulary import TokenVocabulary
from rlflow.search import generator

_TINY = 1e-8


@dataclass
class Scales:
    """What the returns of each model are divided by: the root mean square of its episodes' returns so far.

    A model in which one per cent can be gained teaches as loudly as one in which fifty can.
    """

    squares: dict[int, float] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, spec: int, total: float) -> None:
        """Count an episode's return."""
        self.squares[spec] = self.squares.get(spec, 0.0) + total * total
        self.counts[spec] = self.counts.get(spec, 0) + 1

    def of(self, spec: int) -> float:
        """1 where nothing was earned yet."""
        mean = self.squares.get(spec, 0.0) / max(1, self.counts.get(spec, 0))
        return math.sqrt(mean) if mean > _TINY * _TINY else 1.0


@dataclass
class PolicyProgress:
    """How far a training is; what a resumed one goes on with."""

    updates: int = 0
    steps: int = 0
    episodes: int = 0
    seconds: float = 0.0
    best_score: float = -math.inf
    evaluations_since_best: int = 0
    demonstrated: int = 0  # expansions of the searches that were imitated


class Training:
    """What a training has in hand: the policy, its optimiser, the best weights so far, and how far it is.

    ``specs``: to train on; all use the same rules. ``held_out``: to judge by (default: the training's own). ``out``:
    the checkpoint; ``<out>.last`` is what ``resume`` goes on from. ``start``: weights to begin with.
    """

    def __init__(
        self,
        specs: Sequence[ProblemSpec],
        config: TrainConfig,
        *,
        out: str | Path | None = None,
        held_out: Sequence[ProblemSpec] = (),
        seed: int = 0,
        device: str = "cpu",
        resume: bool = False,
        start: PolicyCheckpoint | None = None,
    ) -> None:
        if not specs:
            raise UsageError("The training was given no model; give at least one to learn on.")
        if device != "cpu" and not torch.cuda.is_available():
            raise UsageError(f"The device {device!r} was asked for, and torch finds no GPU here; use cpu.")
        self.specs, self.held_out, self.config = list(specs), list(held_out), config
        self.out, self.seed, self.device = None if out is None else Path(out), seed, device
        self.start_card = start.card if start else None
        self.progress, self.scales, self.rng = PolicyProgress(), Scales(), generator(seed)
        self.vocabulary = start.vocabulary if start else TokenVocabulary.of(list(specs[0].load().ruleset.names))
        self.policy = start.policy() if start else make_policy(config.policy, self.vocabulary, seed)
        self.best_weights = weights_of(self.policy)
        if start:
            self.config = dataclasses.replace(config, policy=start.config.policy)
        self.policy.to(device)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=config.lr, eps=1e-5)
        if resume:
            self._resume()

    def judged(self, score: float, weights: dict[str, np.ndarray]) -> None:
        """Hear what these weights scored; they are kept, and written, where that is the best so far."""
        self.progress.evaluations_since_best += 1
        if score > self.progress.best_score:
            self.progress.best_score, self.progress.evaluations_since_best = score, 0
            self.best_weights = weights
            self.save_best()

    def save_best(self) -> PolicyCheckpoint:
        """The best weights, also written to ``out``; those of the moment where nothing was judged yet."""
        kept = self.best_weights if not math.isinf(self.progress.best_score) else weights_of(self.policy)
        checkpoint = PolicyCheckpoint(self.config, self.vocabulary, kept, card=self._card())
        if self.out is not None:
            checkpoint.save(self.out)
        return checkpoint

    def save_last(self) -> None:
        """Write ``<out>.last``."""
        if self._last is None:
            return
        state = {f"best/{name}": array for name, array in self.best_weights.items()}
        state |= optimizer_arrays(self.optimizer, self.policy, "adam")
        progress = {
            **dataclasses.asdict(self.progress),
            "best_score": known_score(self.progress.best_score),
            "scales": [[spec, self.scales.squares[spec], self.scales.counts[spec]] for spec in self.scales.squares],
            "rng": self.rng.bit_generator.state,
            "seed": self.seed,
            "models": [spec.model for spec in self.specs],
        }
        weights = weights_of(self.policy)
        PolicyCheckpoint(self.config, self.vocabulary, weights, state, progress, self._card()).save(self._last)

    @property
    def _last(self) -> Path | None:
        return None if self.out is None else self.out.with_name(self.out.name + ".last")

    def _card(self) -> dict[str, Any]:
        more = {name: getattr(self.progress, name) for name in ("updates", "steps", "episodes", "demonstrated")}
        more |= {"seconds": round(self.progress.seconds, 1), "score": known_score(self.progress.best_score)}
        more |= {"start": self.start_card} if self.start_card else {}
        return card_of(self.specs, self.seed, held_out=[spec.title for spec in self.held_out], **more)

    def _resume(self) -> None:
        """Go on where ``<out>.last`` ended. Raises :class:`UsageError` where that was another training."""
        models = [spec.model for spec in self.specs]
        last = resumed(self._last, PolicyCheckpoint.load, self.config, models, self.seed)
        plain = last.progress
        for spec, squares, count in plain["scales"]:
            self.scales.squares[spec], self.scales.counts[spec] = squares, count
        self.rng.bit_generator.state = plain["rng"]
        self.progress = progress_of(PolicyProgress, plain)
        self.policy.load_state_dict({name: torch.from_numpy(array) for name, array in last.weights.items()})
        load_optimizer(self.optimizer, self.policy, "adam", last.extra)
        self.best_weights = part_of(last.extra, "best/")
