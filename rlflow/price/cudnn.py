"""Prices as cuDNN, cuBLASLt and kernels of our own pay them on an NVIDIA GPU.

Regions are those of the "generic" fusion table, which is also what the back end plans whole graphs by. A region's price
is its median time per run in a captured chain of runs, replayed between events on the GPU, with the fastest of its
routines (a workspace bound, cuDNN's and cuBLASLt's heuristics, a timed choice among the first five): what it adds to a
replayed model, without the start of a replay. In a model whose weights exceed the GPU's second-level cache, weights are
read from memory: repeated runs of a region read other copies of them.

A price belongs to the GPU, to the versions of driver, cuDNN and cuBLASLt, and to the way of computing (``dtype``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from rlflow.errors import CostError
from rlflow.price.allowance import PricingProgress
from rlflow.price.calibration import Calibration
from rlflow.price.database import PriceContext
from rlflow.price.onnxruntime import OnnxRuntimeCost
from rlflow.price.protocol import FillReport
from rlflow.price.specs import input_specs
from rlflow.runtime import Measurement, RuntimeOptions

if TYPE_CHECKING:
    from rlflow.graph import Graph

#: Starting a replay, changes of layout and the reading of weights are in the regions' own times, or in none.
_NOTHING_BESIDE = Calibration(0.0, 0.0, 0.0, (1.0,), (float("inf"),))
_METHOD_OF_CLOCK = "CUDA events, captured chain"


class CudnnCost(OnnxRuntimeCost):
    """As :class:`OnnxRuntimeCost`, on the GPU. ``dtype``: ``float32`` (exact products), ``tf32``, ``float16`` or
    ``bfloat16``, in which float32 tensors are stored and multiplied.
    """

    name = "cudnn"
    runtime_name: ClassVar[str] = "cudnn"

    def __init__(self, *, dtype: str = "float32", **options: Any) -> None:
        options.setdefault("time_limit", 120.0)  # the first region waits for the libraries to start
        super().__init__(**options)
        if options.get("worker") is None:
            self.options = RuntimeOptions(runtime="cudnn", precision=dtype)

    def run_time(self, graph: Graph) -> float:
        """Milliseconds of the whole graph, captured and replayed on the GPU (random inputs and weights of its shapes).

        Raises CostError with the back end's sentence where it cannot run the graph.
        """
        from rlflow.frontends import graph_to_model, symbolic

        shapes = [graph.shape(graph.node_outputs(node)[0]) or () for node in graph.inputs()]
        names = {name for shape in shapes for name in symbolic.names(shape)}
        bound = graph.bind({name: self.dims.get(name, 1) for name in names}) if names else graph
        item = ("whole", graph_to_model(bound).SerializeToString(), input_specs(bound))
        result = self._timed([item], cold=False)["whole"]
        if not isinstance(result, Measurement):
            raise CostError(f"The whole graph cannot be timed on the GPU: {result}")
        return result.ms

    def fill(
        self,
        graphs: Iterable[Graph],
        *,
        limit: int | None = None,
        stop: Callable[[], bool] | None = None,
        seconds: float | None = None,
        tell: Callable[[PricingProgress], None] | None = None,
    ) -> FillReport:
        """As for ONNX Runtime; the first graph decides whether weights stay in the GPU's cache."""
        graphs = list(graphs)
        if self._working_set is None and graphs:
            weights = max(float(self.pricer.summary(graph)["weight_bytes"]) for graph in graphs)
            if self.options.precision in ("float16", "bfloat16"):
                weights /= 2
            cache = int(self._description()["cache_bytes"])
            self._flush = 2 * cache if weights > cache else 0
        return super().fill(graphs, limit=limit, stop=stop, seconds=seconds, tell=tell)

    def _kept_as(self, key: str, cold: bool = True) -> str:
        return f"1:{'cold' if self._flush else 'warm'}:{key}"

    @property
    def place(self) -> PriceContext:
        """Where these prices hold."""
        if self._context is None:
            context = PriceContext.of(self._description(), self.options.precision)
            self._context = replace(context, threads=1)
        return self._context

    def _clock_state(self) -> str:
        return _METHOD_OF_CLOCK

    def _calibrated(self, block: int) -> Calibration:
        return _NOTHING_BESIDE

    def _view_ms(self, block: int) -> float:
        return _NOTHING_BESIDE.view

    def _own_fusion(self) -> str:
        return "generic"

    def _timed(
        self, items: Any, cold: bool, sessions: int | None = None, hasty: bool = False
    ) -> dict[str, Measurement | str]:
        if not items:
            return {}
        return self.worker.measure_many(
            items,
            repeats=self._repeats,
            min_time=max(self._min_time, 1e-3),
            flush_bytes=self._flush if cold else 0,
            time_limit=self._time_limit,
        )
