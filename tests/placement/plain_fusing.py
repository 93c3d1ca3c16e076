"""The greedy pass of fusion in plain Python, an oracle for the core's."""

from __future__ import annotations

from collections.abc import Sequence

from rlflow.placement.fusing import FusingTask
from rlflow.placement.sketches import NetworkSketch

__all__ = ["greedy_groups"]


def greedy_groups(task: FusingTask, levels: Sequence[int]) -> list[int]:
    """The group of each node, by its first one."""
    sketch = task.sketch
    group, members = list(range(task.nodes)), [[node] for node in range(task.nodes)]
    pairs = sorted((one, reader) for reader, ones in enumerate(sketch.inputs) for one in ones if levels[one])
    for maker, reader in sorted(pairs, key=lambda pair: -levels[pair[0]]):
        a, b = group[maker], group[reader]
        both = members[a] + members[b]
        if a == b or len(both) > task.most or sum(map(bool, sketch.products[both])) > 1:
            continue
        if not _acyclic(task, group, members[a], members[b], {a, b}) or _reads(sketch, both) > task.operands:
            continue
        first, other = min(a, b), max(a, b)
        members[first], members[other] = members[first] + members[other], []
        for node in members[first]:
            group[node] = first
    return group


def _acyclic(task: FusingTask, group: list[int], makers: list[int], readers: list[int], pair: set[int]) -> bool:
    """Whether all readers of the one are in the pair, or all that the other reads."""
    leaves = {group[reader] for node in makers for reader in task.readers[node]}
    read = {group[one] for node in readers for one in task.sketch.inputs[node]}
    return leaves <= pair or read <= pair


def _reads(sketch: NetworkSketch, nodes: list[int]) -> int:
    values = {one for node in nodes for one in sketch.inputs[node]} - set(nodes)
    return len(values) + sum(1 for node in nodes if sketch.weight_bytes[node] > 0)
