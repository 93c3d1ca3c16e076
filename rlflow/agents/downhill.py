"""The way down by price alone, which asks no agent: what every agent that walks is compared with, and falls back on."""

from __future__ import annotations

import numpy as np

from rlflow.env.walks import STOP, Episode


def steepest(episode: Episode) -> int | None:
    """The cheapest candidate (its position in the table) where that is an improvement."""
    if episode.ended or len(episode.place.table) == 0:
        return None
    table, problem = episode.place.table, episode.walks.problem
    k = int(np.argmin(table.cost))
    return k if table.cost[k] < table.node.cost - problem.gain_floor(table.node.cost) else None


def descend(episode: Episode) -> Episode:
    """The cheapest candidate while it is an improvement, then stop."""
    while not episode.ended:
        k = steepest(episode)
        episode.step(STOP if k is None else 1 + k)
    return episode
