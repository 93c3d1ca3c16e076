"""The handle that scripts build with: operators go in, costs, times and better graphs come out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlflow.compat.taso.handle import GraphHandle
from rlflow.compat.taso.store import Store
from rlflow.errors import RuntimeUnavailable, UsageError

if TYPE_CHECKING:
    from rlflow.frontends import ConstantStore, ImportedModel
    from rlflow.graph import Graph

_RUNS, _RUN_SECONDS = 100, 20.0


class PyModel:
    """Settings for the graphs made from now on: the seed of their random weights, and whether costs are printed.

    TASO's was its process-wide device state; nothing here needs one.
    """

    def __init__(self, print_cost: bool = False, seed: int = 0) -> None:
        self.print_cost = print_cost
        self.seed = seed

    def new_graph(self) -> PyGraph:
        """An empty graph with these settings."""
        return PyGraph(self.print_cost, self.seed)


class PyGraph(GraphHandle):
    """A handle that can also be measured, and optimised."""

    def run_time(self, *, dims: Mapping[str, int] | None = None, threads: int = 1) -> float:
        """Measured milliseconds of the whole graph in ONNX Runtime: the median of up to 100 runs after a warm-up.

        Raises RuntimeUnavailable where ONNX Runtime is missing, UsageError for a symbolic dimension without value.
        """
        import numpy as np

        from rlflow.compat.taso.onnx_export import export_onnx
        from rlflow.equivalence import make_inputs
        from rlflow.graph.ranges import input_ranges
        from rlflow.runtime import RuntimeOptions, Worker, unavailable_reason

        reason = unavailable_reason()
        if reason is not None:
            raise RuntimeUnavailable(f"taso: run_time() cannot measure here: {reason}")
        ranges = input_ranges(self._store.core())
        with Worker(RuntimeOptions(threads=threads)) as worker:
            handle = worker.load(export_onnx(self).SerializeToString())
            feeds = make_inputs(worker.inspect(handle).inputs, self._store.seed, ranges, None, dims)
            samples = worker.time_interleaved([handle], feeds, rounds=_RUNS, seconds=_RUN_SECONDS, min_rounds=3)
        return float(np.median(samples.wall_ms))

    # --- search -----------------------------------------------------------------------------------------------------

    def optimize(
        self, alpha: float | None = 1.0, budget: int | str = 1000, print_subst: bool = False, **options: Any
    ) -> PyGraph:
        """A new, faster graph that computes the same; see :func:`taso.optimize`. This one is left as it is."""
        from rlflow.compat.taso.optimizing import optimize

        return optimize(self, alpha, budget, print_subst, **options)


def new_graph(print_measurements: bool = False, *, seed: int = 0) -> PyGraph:
    """An empty graph. ``seed``: of weights that are made without data."""
    return PyGraph(print_measurements, seed)


def from_rlflow(source: Graph | ImportedModel, constants: ConstantStore | None = None) -> PyGraph:
    """A taso graph of an rlflow graph, or of a model that ``rlflow.load`` read (with its weights).

    ``constants``: where the weights of a bare graph are; weights that nobody has are drawn when the graph is written.
    """
    from rlflow.frontends import ConstantStore, ImportedModel, baseline
    from rlflow.graph import Graph

    if isinstance(source, ImportedModel):
        names = [] if source.passthrough else [info.name for info in source.origin.model.graph.output]
        return PyGraph._of(source, baseline(source), names)
    if not isinstance(source, Graph):
        raise UsageError(f"taso: from_rlflow() got {type(source).__name__}; expected an rlflow Graph or ImportedModel.")
    graph = PyGraph()
    store = Store(0, ConstantStore() if constants is None else constants)
    store.pin(store.splice(source, store.constants, loaded=True))
    graph._adopt(store)
    return graph
