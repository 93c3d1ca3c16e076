"""What a policy sees of a state: the graph once, and every candidate as a few numbers. Plain arrays, nothing padded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlflow.graph.features import GraphFeatures

#: Columns of ``Observation.globals``; see ``squash`` for gains.
GLOBAL_COLUMNS = (
    "log cost",
    "gain so far",
    "best gain so far",
    "behind the best",
    "part of the horizon",
    "log nodes",
    "log candidates",
)
#: Columns of ``Observation.delta``: what a candidate changes.
DELTA_COLUMNS = (
    "gain",
    "gain over the best",
    "part of the largest gain",
    "nodes added",
    "nodes removed",
    "edges added",
    "edges removed",
    "weight growth",
    "is estimated",
    "was visited",
    "is stop",
)
#: Rule number of the candidate that ends the episode.
STOP_RULE = -1


class Observation(NamedTuple):
    """A state and its candidates; candidate 0 is to stop.

    ``globals`` [len(GLOBAL_COLUMNS)] float32. ``rule`` [k] int32: number among ``rule_names`` of the problem, or
    ``STOP_RULE``. ``delta`` [k, len(DELTA_COLUMNS)] float32. ``touched`` [t] int32: rows of ``graph`` that a candidate
    matched; ``touched_by`` [t] int32: whose they are, ascending. ``children``: for encoders that read every candidate's
    graph, the graphs in the candidates' order (the current one for stop); empty otherwise.
    """

    graph: GraphFeatures
    globals: np.ndarray
    rule: np.ndarray
    delta: np.ndarray
    touched: np.ndarray
    touched_by: np.ndarray
    children: tuple[GraphFeatures, ...] = ()

    @property
    def candidates(self) -> int:
        """Number of candidates, stop included."""
        return len(self.rule)


def squash(gain: np.ndarray | float) -> np.ndarray:
    """Signed logarithm of a log ratio of costs: 0.0001 becomes 0.02, 0.001 0.14, 0.01 0.48, 0.1 0.92."""
    return np.sign(gain) * np.log1p(1000.0 * np.abs(gain)) / 5.0
