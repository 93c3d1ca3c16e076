"""The best cut of a chain into consecutive parts: an exact dynamic programme over the positions of the cuts.

Nodes lie in topological order; part k is the nodes from cut k-1 to cut k. A part takes the time of its nodes, and of
what is handed over at its two ends. The slowest part decides how many requests a second a pipeline serves, so the
programme makes that part as quick as can be. Of all cuts that come within ``slack`` of this it takes those over which
the least is handed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from rlflow.errors import UsageError

_FORBIDDEN = np.inf


@dataclass(frozen=True)
class Chain:
    """What a cut of ``n`` nodes in order is judged by.

    ``cost`` [n] float64: time of each node, in any unit. ``handed`` [n + 1] float64: time, in the same unit, of handing
    over what is alive between node i - 1 and node i; infinite where no cut may be, 0 at both ends. ``alive`` [n]: bytes
    alive while a node runs. ``weights``: by node, the constants that it reads; ``weight_bytes``: their sizes.
    """

    cost: np.ndarray
    handed: np.ndarray
    alive: np.ndarray | None = None
    weights: Sequence[Sequence[str]] = ()
    weight_bytes: dict[str, int] = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.cost)

    def memory(self, begin: int, end: int) -> int:
        """Bytes that the nodes ``begin`` to ``end`` - 1 need: each of their weights once, and what is alive."""
        names = {name for weights in self.weights[begin:end] for name in weights}
        live = 0 if self.alive is None or begin == end else int(np.max(self.alive[begin:end]))
        return sum(self.weight_bytes[name] for name in names) + live

    def times(self, cuts: Sequence[int]) -> list[float]:
        """The time of each part."""
        ends = [0, *cuts, self.nodes]
        total = np.concatenate([[0.0], np.cumsum(self.cost)])
        return [
            float(total[end] - total[begin] + self.handed[begin] + self.handed[end]) for begin, end in pairwise(ends)
        ]


def best_cuts(chain: Chain, parts: int, *, memory: int | None = None, slack: float = 0.02) -> list[int]:
    """The ``parts`` - 1 positions at which the chain is cut, ascending; every part has a node.

    ``memory``: bytes that a part may need at most. Takes time in proportion to parts · n². Raises UsageError where
    there is no such cut.
    """
    n = chain.nodes
    if not 1 <= parts <= n:
        raise UsageError(f"The model has {n} nodes that do work; it cannot be cut into {parts} parts.")
    total = np.concatenate([[0.0], np.cumsum(chain.cost)])
    ends, begins = total + chain.handed, total - chain.handed  # the time of a part is ends[j] - begins[i]
    fits = _Fits(chain, memory)
    least, _ = _programme(ends, begins, parts, fits, None)
    if not np.isfinite(least):
        raise UsageError(_refusal(chain, parts, memory))
    _, cuts = _programme(ends, begins, parts, fits, (least * (1.0 + slack) + 1e-300, chain.handed))
    return cuts


class _Fits:
    """Which beginnings a part that ends at j may have, by its memory: ``least[j]`` is the first."""

    def __init__(self, chain: Chain, memory: int | None) -> None:
        n = chain.nodes
        self.least = np.zeros(n + 1, np.int64)
        if memory is None:
            return
        need = np.zeros(n + 1)  # by beginning, of the weights up to the end that is looked at
        live = np.zeros(n + 1)
        last: dict[str, int] = {}
        for node in range(n):
            for name in chain.weights[node] if chain.weights else ():
                need[last.get(name, -1) + 1 : node + 1] += chain.weight_bytes[name]
                last[name] = node
            if chain.alive is not None:
                np.maximum(live[: node + 1], chain.alive[node], out=live[: node + 1])
            too_much = np.flatnonzero(need[: node + 1] + live[: node + 1] > memory)
            self.least[node + 1] = too_much[-1] + 1 if too_much.size else 0  # need and live fall with the beginning


def _programme(
    ends: np.ndarray, begins: np.ndarray, parts: int, fits: _Fits, within: tuple[float, np.ndarray] | None
) -> tuple[float, list[int]]:
    """(value, cuts) of the best cut: the least time of the slowest part or, where each part has to stay ``within`` a
    time, the least sum of what is handed over.
    """
    n = len(ends) - 1
    best = np.full((parts + 1, n + 1), np.inf)
    came = np.zeros((parts + 1, n + 1), np.int64)
    best[0, 0] = 0.0 if within else -np.inf
    for part in range(1, parts + 1):
        last = n - (parts - part)
        for end in range(last if part == parts else part, last + 1):
            first = max(part - 1, int(fits.least[end]))
            if first >= end or ends[end] == _FORBIDDEN:
                continue
            with np.errstate(invalid="ignore"):
                time = ends[end] - begins[first:end]
            before = best[part - 1, first:end]
            if within is None:
                value = np.maximum(before, time)
            else:
                value = np.where(time <= within[0], before + (within[1][end] if end < n else 0.0), np.inf)
            at = int(np.argmin(value))
            best[part, end], came[part, end] = value[at], first + at
    cuts, end = [], n
    for part in range(parts, 1, -1):
        end = int(came[part, end])
        cuts.append(end)
    return float(best[parts, n]), cuts[::-1]


def _refusal(chain: Chain, parts: int, memory: int | None) -> str:
    places = int(np.isfinite(chain.handed[1:-1]).sum())
    if places < parts - 1:
        return (
            f"The model cannot be cut into {parts} parts: there are {places} places where everything that is handed "
            "over is a tensor of a known type."
        )
    whole = chain.memory(0, chain.nodes)
    return (
        f"No cut into {parts} parts keeps each within {memory} bytes; the whole needs {whole}. Give more memory, or "
        "more parts."
    )
