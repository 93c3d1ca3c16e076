"""One interface for decisions about all nodes of a graph, and the graph as whoever decides sees it.

Four tasks share it: :class:`rlflow.placement.PlacementTask` (a device a node), and with a level of priority a node
:class:`rlflow.placement.ordering.OrderingTask`, :class:`rlflow.placement.fusing.FusingTask` and
:class:`rlflow.placement.compiled_fusing.CompiledFusingTask`. Lower objectives are better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rlflow.placement.task import Evaluation
from rlflow.placement.work import Devices, Work

__all__ = ["FEATURES", "DecisionTask", "GraphView"]

#: Columns of :attr:`GraphView.features`.
FEATURES = (
    "seconds", "bytes_made", "bytes_read", "place", "work_before", "way_to_the_end", "way_from_the_start", "slack",
    "readers", "makers", "weight_bytes", "product", "beside", "lane", "choices",
)  # fmt: skip


class DecisionTask(Protocol):
    """``nodes`` decisions, each one of ``choices`` values; ``spent`` counts evaluations. ``evidence``: how what a
    decision is worth is known, as in :class:`Evaluation`.
    """

    evidence: str
    spent: int

    @property
    def nodes(self) -> int: ...

    @property
    def choices(self) -> int: ...

    def evaluate(self, decisions: Any) -> Evaluation:
        """What decisions int [n] are worth."""
        ...

    def scores(self, decisions: Any) -> np.ndarray:
        """The objectives of many decisions [rows, n], float64 [rows]; invalid ones are above all valid ones."""
        ...


@dataclass(frozen=True)
class GraphView:
    """A graph as a policy sees it, its nodes in a topological order.

    ``order`` int64 [n]: the node of the task at each place; ``features`` float32 [n, F], which do not depend on units;
    ``source``, ``target`` int64 [E]: places that an edge joins; ``handed`` float32 [E]: what it takes to move its value
    to another device, in units of a mean node's time; ``seconds`` float32 [n]: shares of the whole work.
    """

    order: np.ndarray
    features: np.ndarray
    source: np.ndarray
    target: np.ndarray
    seconds: np.ndarray
    handed: np.ndarray

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.order)

    @classmethod
    def of(cls, work: Work, devices: Devices, products: Sequence[bool] | np.ndarray | None = None) -> GraphView:
        """The view of ``work`` on ``devices``; ``products`` [n]: which nodes are products (default: those that have
        weights). Raises UsageError for a cycle.
        """
        order = np.array(work.order, np.int64)
        place = np.empty(work.tasks, np.int64)
        place[order] = np.arange(work.tasks)
        counts = np.array([len(readers) for readers in work.readers], np.int64)
        makers, readers = np.repeat(work.maker, counts), _joined(work.readers)
        inner = makers >= 0
        source, target = place[makers[inner]], place[readers[inner].astype(np.int64)]
        value = np.repeat(np.arange(len(counts)), counts)[inner]
        features = _features(work, devices, order, source, target, value)
        heavy = np.array([bool(one) for one in work.weights]) if work.weights else np.zeros(work.tasks, bool)
        features[:, FEATURES.index("product")] = (heavy if products is None else np.asarray(products, bool))[order]
        seconds = work.seconds[order]
        share = seconds / max(float(seconds.sum()), 1e-30)
        handed = _hand_over(work, devices)[value] / _unit(work, devices)
        return cls(order, features, source, target, share.astype(np.float32), handed.astype(np.float32))

    def told(self, at_places: np.ndarray) -> np.ndarray:
        """Decisions [..., n] by place as decisions by node."""
        found = np.empty_like(at_places)
        found[..., self.order] = at_places
        return found


def _joined(lists: Sequence[Sequence[int]]) -> np.ndarray:
    return np.array([one for ones in lists for one in ones], np.int64)


def _features(
    work: Work, devices: Devices, order: np.ndarray, source: np.ndarray, target: np.ndarray, value: np.ndarray
) -> np.ndarray:
    n, count = work.tasks, len(devices)
    seconds = work.times(devices).mean(axis=1)[order]
    unit, move = _unit(work, devices), _hand_over(work, devices)
    sent = np.zeros(n)
    np.maximum.at(sent, source, move[value])
    got = np.bincount(target, move[value], n)
    hops, down = _ways(source, target, seconds, n)
    _, up = _ways(n - 1 - target, n - 1 - source, seconds[::-1], n)
    up = up[::-1]
    longest = max(float(up.max(initial=0.0)), 1e-30)
    level = np.bincount(hops, minlength=1)
    weights = np.zeros(n)
    if work.weights:
        weights = np.array([float(sum(work.weight_bytes[w] for w in work.weights[one])) for one in order.tolist()])
    found = np.zeros((n, len(FEATURES)), np.float32)
    columns = {
        "seconds": np.log1p(seconds / unit), "bytes_made": np.log1p(sent / unit), "bytes_read": np.log1p(got / unit),
        "place": np.arange(n) / max(n, 1), "work_before": np.cumsum(seconds) / max(float(seconds.sum()), 1e-30),
        "way_to_the_end": up / longest, "way_from_the_start": down / longest,
        "slack": 1.0 - (up + down - seconds) / longest,
        "readers": np.log1p(np.bincount(source, minlength=n)), "makers": np.log1p(np.bincount(target, minlength=n)),
        "weight_bytes": np.log1p(weights / max(float(weights.mean()) if n else 0.0, 1e-30)),
        "beside": np.log1p(level[hops] - 1.0), "lane": _lanes(hops) / np.maximum(level[hops], 1),
        "choices": np.full(n, count / 8.0),
    }  # fmt: skip
    for name, column in columns.items():
        found[:, FEATURES.index(name)] = column
    return found


def _unit(work: Work, devices: Devices) -> float:
    """Mean seconds of a node."""
    return max(float(work.times(devices).mean()) if work.tasks else 0.0, 1e-30)


def _hand_over(work: Work, devices: Devices) -> np.ndarray:
    """Seconds that each value takes from a device to another, in the mean over links."""
    pairs = max(len(devices) * (len(devices) - 1), 1)
    return np.asarray(float(devices.latency.sum()) / pairs + work.bytes * (float(devices.per_byte.sum()) / pairs))


def _ways(source: np.ndarray, target: np.ndarray, seconds: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(hops, seconds) of the longest way from the start to the end of each node; edges run from lower to higher."""
    hops, ends = [0] * n, [0.0] * n
    by_target = np.argsort(target, kind="stable")
    begins, sources = np.searchsorted(target[by_target], np.arange(n + 1)).tolist(), source[by_target].tolist()
    for node, own in enumerate(seconds.tolist()):
        before = sources[begins[node] : begins[node + 1]]
        if before:
            hops[node] = 1 + max([hops[one] for one in before])
            own += max([ends[one] for one in before])
        ends[node] = own
    return np.array(hops, np.int64), np.array(ends)


def _lanes(hops: np.ndarray) -> np.ndarray:
    """How many nodes before each one have as many hops."""
    by_level = np.argsort(hops, kind="stable")
    begins = np.concatenate([[0], np.cumsum(np.bincount(hops, minlength=1))])
    found = np.empty(len(hops), np.int64)
    found[by_level] = np.arange(len(hops)) - begins[hops[by_level]]
    return found
