"""What a region costs in the model at hand, out of what it takes alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rlflow.graph import Graph
from rlflow.price import in_model, layouts, regions
from rlflow.price.bench import STREAMING_FLUSH_MB, Bench, Caches, mega
from rlflow.price.database import Price
from rlflow.price.lookup import Lookup
from rlflow.price.machine import Machine
from rlflow.price.partition import Job, Partition, streams

#: The speed of memory differs so much from one moment to another: a megabyte of weights took 0.047 to 0.069 ms within
#: two hours.
MEMORY_SPREAD = 1.5


class RegionPrices:
    """Hands prices to the native pricer: weights from memory, changes of layout, and company are added to them.

    ``flush_given``: how much is walked through before each sample was said, and is not to be chosen.
    """

    def __init__(
        self, bench: Bench, lookup: Lookup, machine: Machine, partition: Partition, flush_given: bool = False
    ) -> None:
        self._bench, self._lookup, self._machine, self._partition = bench, lookup, machine, partition
        self._flush_given = flush_given
        self.in_model = in_model.ONNXRUNTIME if partition.fusion == "onnxruntime" else in_model.NONE
        #: Why regions have no price, and the spread of those that have one, by signature.
        self.refusals: dict[str, str] = {}
        self.spread: dict[str, float] = {}
        self._working_set: float | None = None
        #: The layout contexts that every key was met in, by signature, and what changes of layout take there.
        self._contexts: dict[str, dict[str, float]] = {}

    @property
    def streams_weights(self) -> bool:
        """Whether the model at hand mostly reads weights."""
        return self._bench.caches.streams

    def meet(self, graphs: Iterable[Graph]) -> bool:
        """Choose how the regions of a model are priced, by the first graphs that are seen of it: whether it streams
        its weights, and through which caches. False where that was chosen before.
        """
        graphs = list(graphs)
        if self._working_set is not None or not graphs:
            return False
        self._working_set = max(map(self._partition.weight_bytes, graphs))
        partition, flush = self._partition, self._bench.caches.flush_bytes
        if partition.fusion == "onnxruntime" and streams(graphs[0], partition.pricer, partition.dims):
            self.in_model = in_model.STREAMING
            if not self._flush_given and self._working_set > mega(STREAMING_FLUSH_MB):
                flush = mega(STREAMING_FLUSH_MB)
                self._machine.forget()
            self._bench.caches = Caches(flush, streams=True)
        return True

    def set(self, job: Job, price: Price) -> None:
        """Price every layout context of a region, those that it was met in before too."""
        least = 0.0
        if self._partition.fusion != "none":
            size = regions.weight_bytes(job.graph, job.region)
            least = self._machine.calibration.weights_ms(size, self._working_set or 0.0)
        self._lookup.go_by(job.key, price)
        pricer = self._partition.pricer
        contexts = self._contexts.setdefault(job.key, {})
        for signature, (graph, region) in job.waiting.items():
            contexts[signature] = layouts.in_graph_ms(graph, region, self._machine, self._partition)
        for signature, changes in contexts.items():
            if price.ms is None:
                self.refusals[signature] = price.refusal or "the runtime refused it"
                pricer.set_prices([signature], [0.0])
                continue
            self.spread[signature] = price.spread_ms or 0.0
            alone = self._with_weights(price.ms, least) + changes
            pricer.set_prices([signature], [self.in_model.ms(alone)])

    def _with_weights(self, ms: float, least: float) -> float:
        """A region's time, which is not below that of reading its weights; from memory, not above it for a little."""
        far = self._bench.caches.far
        return least if far and least <= ms < MEMORY_SPREAD * least else max(ms, least)

    def has(self, signature: str) -> bool:
        """Whether a region was priced here, or refused."""
        return signature in self.spread or signature in self.refusals

    @property
    def relative_noise(self) -> float:
        """Median over the prices in use of interquartile range divided by price."""
        pricer = self._partition.pricer
        shares = [spread / ms for signature, spread in self.spread.items() if (ms := pricer.find(signature))]
        return float(np.median(shares)) if shares else 0.0
