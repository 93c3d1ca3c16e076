"""Choices among candidates whose number differs from state to state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rlflow.nn.draws import draw
from rlflow.nn.segment import segment_log_softmax, segment_max, segment_sum


@dataclass(frozen=True)
class RaggedCategorical:
    """One categorical distribution a state. ``logits`` [k]; ``owner`` [k] int64, ascending: the state of each
    candidate; ``count``: number of states, each of which has a candidate.
    """

    logits: Tensor
    owner: Tensor
    count: int

    @property
    def log_probs(self) -> Tensor:
        """[k], normalised within each state."""
        return segment_log_softmax(self.logits, self.owner, self.count)

    @property
    def begins(self) -> Tensor:
        """[count]: where each state's candidates begin."""
        sizes = torch.bincount(self.owner, minlength=self.count)
        return sizes.cumsum(0) - sizes

    def log_prob(self, action: Tensor) -> Tensor:
        """[count]: of the candidate ``action`` [count] of each state (counted within it)."""
        return self.log_probs[self.begins + action]

    def entropy(self) -> Tensor:
        """[count], in nats."""
        logs = self.log_probs
        return -segment_sum(logs.exp() * logs, self.owner, self.count)

    def mode(self) -> np.ndarray:
        """[count]: the likeliest candidate of each state, the first of equals."""
        highest = segment_max(self.logits, self.owner, self.count)[self.owner]
        at = torch.arange(len(self.logits), device=self.logits.device)
        far = torch.full_like(at, len(self.logits))
        first = far.new_full((self.count,), len(self.logits)).scatter_reduce(
            0, self.owner, torch.where(self.logits >= highest, at, far), "amin"
        )
        return (first - self.begins).cpu().numpy()

    def sample(self, generators: Sequence[np.random.Generator]) -> np.ndarray:
        """[count]: a candidate of each state, drawn by that state's own generator (so that it does not matter in which
        company a state is).
        """
        probabilities = self.log_probs.detach().exp().double().cpu().numpy()
        begins = [*self.begins.tolist(), len(probabilities)]
        return np.array(
            [
                draw(probabilities[begins[state] : begins[state + 1]], generators[state].random())
                for state in range(self.count)
            ]
        )
