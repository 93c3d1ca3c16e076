"""Monte-Carlo tree search with a trained policy: ``--search mcts-policy``.

The search is :class:`rlflow.search.mcts.Mcts`, way down and all. The policy takes part in two places: in the prior over
the candidates of a graph, and, where that is asked for, in what a new graph promises, in place of the way down from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from rlflow.env.reward import Improvement
from rlflow.env.walks import STOP, Episode, Place
from rlflow.errors import UsageError
from rlflow.nn.token_vocabulary import TokenVocabulary
from rlflow.search import MoveTable, Problem, Result
from rlflow.search.mcts import Mcts
from rlflow.search.strategies import register

LEAVES = ("descent", "value")


@register
@dataclass(frozen=True)
class PolicyMcts(Mcts):
    """The tree search of ``mcts``, led by a trained policy.

    ``checkpoint``: file of ``rlflow train xrlflow`` (default: the one that ships). ``trust``: how much of the prior is
    the policy's; the rest falls with the candidate's cost. ``leaf``: what a new graph is worth: ``descent``, what the
    way down from it finds, or ``value``, what the policy expects from there, which opens nothing. The other options
    are those of ``mcts``.
    """

    checkpoint: str = ""
    trust: float = 0.5
    leaf: str = "descent"

    name: ClassVar[str] = "mcts-policy"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.leaf not in LEAVES or not 0.0 <= self.trust <= 1.0:
            raise UsageError(
                f"The options of search strategy 'mcts-policy' are trust={self.trust:g}, leaf={self.leaf}; expected a "
                f"trust from 0 to 1, and {' or '.join(LEAVES)}."
            )

    def ready(self) -> None:
        """Raises ModelError for a checkpoint that cannot be read."""
        from rlflow.agents.xrlflow.trained import load_policy

        load_policy(self.checkpoint or None)

    def run(self, problem: Problem, rng: np.random.Generator) -> Result:
        self.ready()
        return super().run(problem, rng)

    def guided(self, problem: Problem, table: MoveTable, prior: np.ndarray) -> np.ndarray:
        """The mixture of what the costs say and what the policy says."""
        return (1 - self.trust) * prior + self.trust * self._judged(problem, table)[0]

    def promise(self, problem: Problem, table: MoveTable) -> float | None:
        """What the policy expects to gain, where leaves are worth that."""
        return max(0.0, self._judged(problem, table)[1]) if self.leaf == "value" else None

    def _judged(self, problem: Problem, table: MoveTable) -> tuple[np.ndarray, float]:
        from rlflow.agents.xrlflow.trained import load_policy

        return judged(problem, table, *load_policy(self.checkpoint or None))


def judged(problem: Problem, table: MoveTable, policy: Any, config: Any) -> tuple[np.ndarray, float]:
    """The probabilities [n] of a table's candidates, to stop aside, and the value of its graph; wherever in a search
    that came up.
    """
    if len(table) == 0:
        return np.zeros(0), 0.0
    place, root = Place(table.node, table), problem.root()
    start: Any = SimpleNamespace(problem=problem, root=Place(root, table))
    episode = Episode(start, Improvement(), config.horizon, policy.config.needs_children, at=place)
    episode.best_ms = min(problem.best_cost, table.node.cost)
    episode.steps = min(max(table.node.depth - root.depth, 0), config.horizon)
    seen = policy.vocabulary.translate(episode.observe(), _rows(policy.vocabulary, tuple(problem.rule_names)))
    scores, value = policy.scores(seen)
    scores = np.delete(scores.astype(np.float64), STOP)
    weights = np.exp(scores - scores.max())
    return weights / weights.sum(), value


@lru_cache(maxsize=8)
def _rows(vocabulary: TokenVocabulary, rule_names: tuple[str, ...]) -> np.ndarray:
    return vocabulary.rule_rows(rule_names)
