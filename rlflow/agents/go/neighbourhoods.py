"""Parts of a graph that are decided anew while the rest stays: large neighbourhoods, as a policy searches them."""

from __future__ import annotations

import numpy as np

__all__ = ["drawn_regions"]

#: No region is a larger share of the nodes.
_LARGEST = 0.5


def drawn_regions(count: int, nodes: int, rng: np.random.Generator) -> np.ndarray:
    """``count`` regions, bool [count, nodes] by place: each a stretch of the topological order from one node to half of
    all, small ones as often as large ones, of which a share is left out. At least one node is in each.
    """
    found = np.zeros((count, nodes), bool)
    for row in found:
        most = max(1.0, _LARGEST * nodes)
        length = int(np.exp(rng.uniform(0.0, np.log(most))))
        begin = int(rng.integers(0, nodes - length + 1))
        row[begin : begin + length] = rng.random(length) < rng.uniform(0.3, 1.0)
        row[begin + int(rng.integers(length))] = True
    return found
