"""The regions of graphs, by a runtime's fusion table: which of them lack a price, and what each is as a model."""

from __future__ import annotations

import functools
import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlflow._core import Pricer
from rlflow.price import regions
from rlflow.price.bench import FLUSH_MB, mega, serialized
from rlflow.price.feed_specs import input_specs
from rlflow.price.machine import Machine
from rlflow.price.traits import traits_of
from rlflow.runtime import FeedSpec

if TYPE_CHECKING:
    from rlflow._core import Region
    from rlflow.graph import Graph

#: Operations for each byte of weights below which reading it takes longer (a core does 60 to 100 operations in the time
#: that it reads 16 bytes from memory).
STREAMING_FLOPS = 4.0
#: Bytes of constants that are made and loaded in a second, about.
_LOADED_IN_A_SECOND = 2e7
#: Bytes that are read and written in a second at best; a byte takes as long as five operations.
_MOVED_IN_A_SECOND, _OPERATIONS_A_BYTE = 2e10, 5.0


class InGraph(NamedTuple):
    """A region where it stands; its values mean nothing in another graph."""

    graph: Graph
    region: Region


@dataclass
class Job:
    """A region that needs a price: its first-seen graph, and the layout contexts that wait for it, by signature.

    ``model`` is the region alone, with ``fronted`` operands that something was put in front of; ``source`` and
    ``feeds`` are that as ONNX, and its random inputs.
    """

    key: str
    graph: Graph
    region: Region
    waiting: dict[str, InGraph]
    fronted: Sequence[int] = ()
    model: Graph | None = None
    source: bytes = b""
    feeds: Mapping[str, FeedSpec] = field(default_factory=dict)

    @property
    def load_seconds(self) -> float:
        """About what making and loading the region's constants takes, once."""
        graph = self.graph
        constants = (value for value in self.region.inputs if graph.is_const(graph.producer(value)))
        extents = (graph.shape(value) or () for value in constants)
        sizes = (4.0 * math.prod(one if isinstance(one, int) else 1 for one in shape) for shape in extents)
        return sum(sizes) / _LOADED_IN_A_SECOND

    @property
    def worth(self) -> float:
        """How much of the graph's time a measurement says something about, roughly, for the time that it takes."""
        return self._work / (0.2 + self.load_seconds)

    @property
    def run_seconds(self) -> float:
        """What one run takes on a fast core, roughly: no machine that measures takes much less."""
        return self._work / _MOVED_IN_A_SECOND

    @property
    def _work(self) -> float:
        return self.region.flops / _OPERATIONS_A_BYTE + self.region.bytes

    @property
    def described(self) -> dict[str, Any]:
        """What a region is, for people and for estimates: regions of the blocked layout are a kind of their own."""
        region = self.region
        layout = " blocked" if region.blocked else ""
        return {
            "kind": f"{region.kind}{layout}",
            "operators": " ".join(regions.operators(self.graph, region)),
            "flops": region.flops,
            "bytes": region.bytes,
            "traits": traits_of(self.graph, region.nodes).text,
        }


class Partition:
    """Graphs as the regions of the table ``fusion``; ``dims``: values of symbolic dimensions, others count as 1."""

    def __init__(self, fusion: str, machine: Machine, dims: Mapping[str, int]) -> None:
        self.fusion, self.dims, self._machine = fusion, dims, machine

    @functools.cached_property
    def pricer(self) -> Pricer:
        """The native pricer; made, and the machine asked what a renamed tensor takes, on first use."""
        pricer = Pricer.table(self.fusion, block=self._machine.block)
        pricer.set_view_price(max(self._machine.view_ms(), 1e-5))
        return pricer

    def weight_bytes(self, graph: Graph) -> float:
        """Bytes of weights that a run of ``graph`` reads."""
        return float(self.pricer.summary(graph)["weight_bytes"])

    def jobs(self, graphs: Iterable[Graph]) -> dict[str, Job]:
        """The regions without a price, by key."""
        jobs: dict[str, Job] = {}
        for graph in graphs:
            for region in self.pricer.regions(graph, unpriced_only=True):
                key = self.key(graph, region)
                job = jobs.setdefault(key, Job(key, graph, region, {}))
                job.waiting.setdefault(region.signature, InGraph(graph, region))
        return jobs

    def differing(self, graphs: Iterable[Graph]) -> dict[str, Job]:
        """The regions that not all of ``graphs`` have equally often, by key: on them it depends which is cheaper."""
        jobs: dict[str, Job] = {}
        counts: list[Counter[str]] = []
        for graph in graphs:
            counts.append(Counter())
            for region in self.pricer.regions(graph):
                if region.opaque or region.view:
                    continue
                key = self.key(graph, region)
                counts[-1][key] += 1
                job = jobs.setdefault(key, Job(key, graph, region, {}))
                job.waiting.setdefault(region.signature, InGraph(graph, region))
        return {key: job for key, job in jobs.items() if len({count[key] for count in counts}) > 1}

    def shares(self, graph: Graph) -> tuple[dict[str, Job], dict[str, float]]:
        """The regions of ``graph`` by key, and the milliseconds of its price that all that have the key hold."""
        jobs: dict[str, Job] = {}
        shares: dict[str, float] = defaultdict(float)
        for region in self.pricer.regions(graph):
            if region.opaque or region.view:
                continue
            key = self.key(graph, region)
            job = jobs.setdefault(key, Job(key, graph, region, {}))
            job.waiting.setdefault(region.signature, InGraph(graph, region))
            shares[key] += region.ms or 0.0
        return jobs, shares

    def key(self, graph: Graph, region: Region) -> str:
        """The region's identity without its layout context, and with the sizes that symbols have.

        Of a region in the blocked layout it matters whether it is: pointwise ones are measured there too.
        """
        names = regions.dimension_names(graph, [*region.inputs, *region.outputs])
        sizes = ",".join(f"{name}={self.dims.get(name, 1)}" for name in names)
        if not sizes and not region.blocked:
            return region.base_signature
        text = f"{region.base_signature}|{'blocked' if region.blocked else ''}|{sizes}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def prepare(self, job: Job) -> None:
        """Make the region a model with random inputs; no model where its result is known beforehand. Raises CostError
        or GraphError where it cannot stand alone: an operand of unknown rank or extent, an opaque operator.
        """
        if job.region.blocked:
            job.model, job.fronted = regions.surrounded(job.graph, job.region, self.pricer.block, self.dims)
        else:
            job.model = regions.extract(job.graph, job.region, self.dims)
        if all(job.model.is_const(job.model.producer(value)) for value in job.model.outputs()):
            job.model = None
        else:
            job.source, job.feeds = serialized(job.model), input_specs(job.model)

    def value_bytes(self, graph: Graph, value: int) -> float:
        """Bytes of a float tensor."""
        from rlflow.frontends import symbolic

        shape = graph.shape(value) or []
        values = {name: self.dims.get(name, 1) for name in symbolic.names(shape)}
        return 4.0 * float(np.prod([symbolic.evaluate(dim, values) if dim is not None else 1 for dim in shape]))


def streams(graph: Graph, pricer: Pricer, dims: Mapping[str, int]) -> bool:
    """Whether reading weights is what a run of ``graph`` mostly does: more of them than the near caches hold, each for
    a few operations, as in a decoder that makes one token or a recurrent cell for one sequence. If they are more than
    a shared cache holds too, then between any two kernels, and between writing a buffer and reading it, more may go
    through the caches than they hold.
    """
    found = pricer.regions(graph)
    read = sum(regions.weight_bytes(graph, region) for region in found)
    if min(read, float(pricer.summary(graph)["weight_bytes"])) <= mega(FLUSH_MB):
        return False
    names = regions.dimension_names(graph, (v for node in graph.order() for v in graph.node_outputs(node)))
    if names:
        found = pricer.regions(graph.bind({name: dims.get(name, 1) for name in names}))
    return sum(region.flops for region in found) < STREAMING_FLOPS * read
