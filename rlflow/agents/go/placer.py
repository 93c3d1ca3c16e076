"""GO as a placer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlflow.agents.go.config import MOVES
from rlflow.errors import UsageError
from rlflow.placement import PlacementTask


@dataclass(frozen=True)
class LearnedPlacement:
    """GO: a policy that was trained on drawn graphs decides about all nodes at once, and then about parts of the best
    placement so far, with moves of annealing between; the first is the best by rule (needs torch).

    ``evaluations``: how many placements are tried, those by rule first, and at least one of its own; ``moves``: of
    annealing, for each decision of its own; ``steps``: updates on the graph at hand before that, of ``samples``
    decisions each, as the checkpoint says (16 by default), and their moves.
    ``checkpoint``: a file of ``rlflow train go``, or ``untrained`` (default: the one that ships).
    """

    evaluations: int = 1000
    moves: int = MOVES
    steps: int = 0
    checkpoint: str = ""
    name = "go"
    keeps_limits = False

    @staticmethod
    def available() -> str | None:
        """Why it cannot be used here, or ``None``."""
        from rlflow import nn

        return nn.available()

    def decide(self, task: PlacementTask, rng: np.random.Generator) -> np.ndarray:
        """A device for each node, int32 [n]. Raises UsageError where torch is absent or there are more than 8 devices;
        ModelError for a checkpoint that cannot be read.
        """
        reason = self.available()
        if reason is not None:
            raise UsageError(f"The placer 'go' cannot be used here: {reason}.")
        if self.evaluations < 1 or self.steps < 0 or self.moves < 0:
            given = f"{self.evaluations}, {self.steps} and {self.moves}"
            raise UsageError(f"The placer 'go' needs at least 1 evaluation, 0 steps and 0 moves; got {given}.")
        if not task.nodes:
            return np.zeros(0, np.int32)
        from rlflow.agents.go.deciding import decided

        return decided(task, self.evaluations, self.steps, self.moves, self.checkpoint, rng)
