"""Changes of layout around a region: what a graph pays for them, and what a region alone pays besides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rlflow.errors import RuntimeCrashed, RuntimeRefused
from rlflow.price import regions
from rlflow.price.bench import LEVEL, Bench
from rlflow.price.machine import Machine
from rlflow.price.partition import Job, Partition
from rlflow.runtime import random_array

if TYPE_CHECKING:
    from rlflow._core import Region
    from rlflow.graph import Graph

#: What a profile calls changes of layout.
_REORDERS = frozenset({"ReorderInput", "ReorderOutput"})
_PROFILE_RUNS = 15


def in_graph_ms(graph: Graph, region: Region, machine: Machine, partition: Partition) -> float:
    """What the changes of layout at the region's border take in the graph at hand."""
    if not region.blocked:
        return 0.0
    plain = [partition.value_bytes(graph, v) for v in _plain_inputs(graph, region)[: region.reorder_inputs]]
    if region.reorder_output:
        plain.append(partition.value_bytes(graph, region.outputs[0]))
    return sum(machine.calibration.reorder_ms(size) for size in plain)


def alone_ms(job: Job, machine: Machine, partition: Partition) -> float:
    """What the stand-alone model does besides the region: changes of layout, and what was put in front."""
    graph, region = job.graph, job.region
    turned = [partition.value_bytes(graph, value) for value in job.fronted]
    total = sum(machine.calibration.pool_ms(size) for size in turned)
    first = next(iter(_plain_inputs(graph, region)), None)
    starts = graph.op(region.nodes[0]) in regions.LAYOUT_STARTERS
    if starts and first is not None and not regions.reads_plain(graph, region, partition.pricer.block):
        turned += [partition.value_bytes(graph, first)] if first not in job.fronted else []
    turned.append(partition.value_bytes(graph, region.outputs[0]))
    return total + sum(machine.calibration.reorder_ms(size) for size in turned)


def kernel_share(job: Job, bench: Bench, block: int) -> float | None:
    """Part of the stand-alone model's kernel time that is the region's own, by the runtime's profiler.

    ``None`` where the profile cannot tell it apart from what was put in front.
    """
    if job.model is None or any((job.graph.shape(v) or [0, 1])[1] % block for v in job.fronted):
        return None
    rng = np.random.default_rng(0)
    feeds = {name: random_array(spec, rng) for name, spec in job.feeds.items()}
    try:
        nodes = bench.worker.profile(job.source, feeds, runs=_PROFILE_RUNS, level=LEVEL)
    except (RuntimeRefused, RuntimeCrashed):
        return None
    beside = _REORDERS | {"MaxPool"} if job.fronted else _REORDERS
    own = sum(node.us for node in nodes if node.op_type not in beside)
    total = sum(node.us for node in nodes)
    return own / total if total > 0 and own > 0 else None


def _plain_inputs(graph: Graph, region: Region) -> list[int]:
    """Computed operands of rank 4: those whose layout may have to be changed come first in a region."""
    return [v for v in region.inputs if not graph.is_const(graph.producer(v)) and len(graph.shape(v) or ()) == 4]
