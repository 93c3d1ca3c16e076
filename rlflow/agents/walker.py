"""Walks over a problem by a trained policy: greedy, sampled, or a beam of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rlflow.agents.checkpoint import load_policy
from rlflow.env.reward import Improvement
from rlflow.env.walks import STOP, Episode, Walks
from rlflow.nn.batch import Batch
from rlflow.nn.policy import Policy
from rlflow.nn.ragged import draw
from rlflow.search import Problem


@dataclass
class Walker:
    """A policy at work. Every graph that a walk opens is a visit that the problem counts and remembers.

    ``temperature`` divides the scores before they become probabilities.
    """

    policy: Policy
    walks: Walks
    rows: np.ndarray
    temperature: float
    horizon: int
    patience: int

    @classmethod
    def of(
        cls, problem: Problem, checkpoint: str, temperature: float, keep: int, horizon: int = 0, patience: int = 0
    ) -> Walker:
        """From a checkpoint (empty: the shipped one); ``horizon``, ``patience`` 0: the trained ones."""
        policy, config = load_policy(checkpoint or None)
        rows = policy.vocabulary.rule_rows(problem.rule_names)
        walks = Walks(problem, keep)
        return cls(policy, walks, rows, temperature, horizon or config.horizon, patience or config.patience)

    def descend(self) -> Episode:
        """The cheapest candidate while it is an improvement; asks the policy nothing."""
        return descend(self.begin())

    def greedy(self) -> Episode:
        """The likeliest candidate until the policy stops."""
        episode = self.begin()
        while not episode.ended:
            episode.step(int(np.argmax(self.probabilities(episode))))
        return episode

    def sample(self, rng: np.random.Generator) -> Episode:
        """A drawn walk of at least one step: to stop at once would find nothing."""
        episode = self.begin()
        while not episode.ended:
            probabilities = self.probabilities(episode)
            if episode.steps == 0:
                probabilities[STOP] = 0
            episode.step(draw(probabilities, rng.random()))
        return episode

    def beam(self, width: int) -> None:
        """The ``width`` likeliest walks side by side, each graph in one of them; ends with the last one."""
        beam = [(0.0, self.begin())]
        seen = {episode.place.node.digest for _, episode in beam}
        while beam:
            ways = [
                (score + log, episode, action)
                for score, episode in beam
                for action, log in enumerate(np.log(self.probabilities(episode) + 1e-30).tolist())
            ]
            beam = []
            for score, episode, action in sorted(ways, key=lambda way: -way[0]):
                if len(beam) == width:
                    break
                if action == STOP:
                    width -= 1  # a walk that stops gives up its place
                    continue
                if episode.place.table.digests[action - 1] in seen:
                    continue
                seen.add(episode.place.table.digests[action - 1])
                twin = episode.fork()
                twin.step(action)
                beam.append((score, twin))
            beam = [pair for pair in beam if not pair[1].ended]

    def probabilities(self, episode: Episode) -> np.ndarray:
        """Of the candidates of the present state, float64."""
        seen = self.policy.vocabulary.translate(episode.observe(), self.rows)
        with torch.no_grad():
            choice, _ = self.policy(Batch.of([seen], self.policy.vocabulary.op_rows))
        logits = choice.logits.double().numpy() / self.temperature
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()

    def begin(self) -> Episode:
        """A walk at the start."""
        children = self.policy.config.needs_children
        return Episode(self.walks, Improvement(), self.horizon, children, self.patience)


def descend(episode: Episode) -> Episode:
    """The cheapest candidate while it is an improvement."""
    problem = episode.walks.problem
    while not episode.ended:
        table = episode.place.table
        k = int(np.argmin(table.cost))
        gains = table.cost[k] < table.node.cost - problem.gain_floor(table.node.cost)
        episode.step(1 + k if gains else STOP)
    return episode
