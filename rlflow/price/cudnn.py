"""Prices as cuDNN, cuBLASLt and kernels of our own pay them on an NVIDIA GPU.

Regions are those of the "generic" fusion table, which is also what the back end plans whole graphs by. A region's price
is its median time per run in a captured chain of runs, replayed between events on the GPU, with the fastest of its
routines: what it adds to a replayed model, without the start of a replay. Candidates are the first five that cuBLASLt's
heuristics propose, and the first five plans of cuDNN's graph interface for each layout and form of a convolution, all
within a bound on workspace. In a model whose weights exceed the GPU's second-level cache, weights are read from memory:
repeated runs of a region read other copies of them.

A price belongs to the GPU, to the versions of driver, cuDNN and cuBLASLt, and to the way of computing (``dtype``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from rlflow.errors import CostError
from rlflow.price.bench import Bench, Caches
from rlflow.price.calibration import Calibration
from rlflow.price.database import PriceContext
from rlflow.price.feed_specs import input_specs
from rlflow.price.machine import Machine
from rlflow.price.measured import OnnxRuntimeCost
from rlflow.price.repeats import Item
from rlflow.runtime import Measurement, RuntimeOptions

if TYPE_CHECKING:
    from rlflow.graph import Graph

#: Starting a replay, changes of layout and the reading of weights are in the regions' own times, or in none.
_NOTHING_BESIDE = Calibration(0.0, 0.0, 0.0, (1.0,), (float("inf"),))
_METHOD_OF_CLOCK = "CUDA events, captured chain"
_LEAST_CHAIN_SECONDS = 1e-3
#: Counts the changes of our kernels and of the choice among routines: prices of an earlier one are not kept.
_METHOD = 2


class _GpuBench(Bench):
    """The clock is the GPU's own, over a captured chain of runs, which needs no further sessions."""

    @functools.cached_property
    def place(self) -> PriceContext:
        return replace(PriceContext.of(self.description, self.options.precision), threads=1)

    def clock_state(self) -> str:
        return _METHOD_OF_CLOCK

    def kept_as(self, key: str, cold: bool = True) -> str:
        return f"{_METHOD}:{'cold' if self.caches.flush_bytes else 'warm'}:{key}"

    def timed(self, items: Sequence[Item], cold: bool, *how: Any, **more: Any) -> dict[str, Measurement | str]:
        if not items:
            return {}
        return self.worker.measure_many(
            items,
            repeats=self.repeats,
            min_time=max(self.min_time, _LEAST_CHAIN_SECONDS),
            flush_bytes=self.caches.flush_bytes if cold else 0,
            time_limit=self.time_limit,
        )


class _GpuMachine(Machine):
    """Nothing is beside the kernels."""

    def calibrated(self) -> Calibration:
        return _NOTHING_BESIDE

    def view_ms(self) -> float:
        return _NOTHING_BESIDE.view


class CudnnCost(OnnxRuntimeCost):
    """As :class:`OnnxRuntimeCost`, on the GPU. ``dtype``: ``float32`` (exact products), ``tf32``, ``float16`` or
    ``bfloat16``, in which float32 tensors are stored and multiplied.
    """

    name = "cudnn"
    on_gpu = True
    runtime_name: ClassVar[str] = "cudnn"
    _bench_of = _GpuBench
    _machine_of = _GpuMachine

    def __init__(self, *, dtype: str = "float32", **options: Any) -> None:
        options.setdefault("time_limit", 120.0)  # the first region waits for the libraries to start
        self._dtype = dtype
        super().__init__(**options)

    def _options(self, provider: str, threads: int) -> RuntimeOptions:
        super()._options(provider, threads)  # refuses what does not go together
        return RuntimeOptions(runtime=self.runtime_name, precision=self._dtype)

    def _meet(self, graphs: Sequence[Graph]) -> bool:
        """As for ONNX Runtime; the first graphs decide whether weights stay in the GPU's cache."""
        if not super()._meet(graphs):
            return False
        weights = max(map(self._partition.weight_bytes, graphs))
        if self.options.precision in ("float16", "bfloat16"):
            weights /= 2
        cache = int(self._bench.description["cache_bytes"])
        self._bench.caches = Caches(2 * cache if weights > cache else 0)
        return True

    def run_time(self, graph: Graph) -> float:
        """Milliseconds of the whole graph, captured and replayed on the GPU (random inputs and weights of its shapes).

        Raises CostError with the back end's sentence where it cannot run the graph.
        """
        from rlflow.frontends import graph_to_model

        bound = graph.bind(self._sizes(graph)) if self._sizes(graph) else graph
        item = ("whole", graph_to_model(bound).SerializeToString(), input_specs(bound))
        result = self._bench.timed([item], cold=False)["whole"]
        if not isinstance(result, Measurement):
            raise CostError(f"The whole graph cannot be timed on the GPU: {result}")
        return result.ms

    def _sizes(self, graph: Graph) -> dict[str, int]:
        """Of the symbolic dimensions of its inputs."""
        from rlflow.frontends import symbolic

        shapes: Iterable[Any] = (graph.shape(graph.node_outputs(node)[0]) or () for node in graph.inputs())
        return {name: self.dims.get(name, 1) for shape in shapes for name in symbolic.names(shape)}
