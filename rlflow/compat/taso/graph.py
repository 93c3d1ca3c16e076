"""The handle that scripts build with: operators go in, costs, times and better graphs come out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rlflow.compat.taso.inspection import Inspection
from rlflow.compat.taso.operators import Operators
from rlflow.compat.taso.store import PyTensor, Store
from rlflow.errors import RuntimeUnavailable, UsageError

if TYPE_CHECKING:
    from onnx import ModelProto

    from rlflow.frontends import ConstantStore, ImportedModel
    from rlflow.graph import Graph
    from rlflow.report import Report

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


class PyGraph(Operators, Inspection):
    """A graph that grows by method calls. Its outputs are the results that nothing reads, in the order of creation.

    ``print_measurements``: ``cost()`` writes the price of each region to standard output. ``seed``: of weights that
    are made without data. ``report``: what ``optimize`` did, on the graph that it returned.
    """

    report: Report | None = None

    def __init__(self, print_measurements: bool = False, seed: int = 0) -> None:
        self._adopt(Store(seed))
        self._print = bool(print_measurements)

    def _adopt(self, store: Store, model: ModelProto | None = None) -> None:
        self._store = store
        self._model, self._model_revision = model, store.revision

    @classmethod
    def _of(cls, imported: ImportedModel, model: ModelProto | None, names: Iterable[str] = ()) -> PyGraph:
        """A handle on a loaded model; it is written back as it came as long as nothing is added."""
        graph = cls()
        store = Store(0, imported.constants)
        outputs = store.splice(imported.graph, imported.constants, loaded=True)
        store.pin(outputs, list(names) or None)
        graph._adopt(store, model)
        return graph

    # --- handles ----------------------------------------------------------------------------------------------------

    def inputs(self) -> list[PyTensor]:
        """The graph's inputs, in order."""
        return [record.outputs[0] for record in self._store.records.values() if record.type == "Input"]

    def outputs(self) -> list[PyTensor]:
        """The graph's outputs: a loaded model's own, then the results that nothing reads."""
        return self._store.outputs()

    def mark_output(self, tensor: PyTensor) -> PyTensor:
        """Makes a tensor an output although something reads it; returns it."""
        self._store.pin([tensor])
        return tensor

    def copy(self) -> PyGraph:
        """A second graph with the same operators and outputs; it shares nothing that can change."""
        fresh = PyGraph(self._print)
        store = Store(self._store.seed, self._store.constants)
        store.pin(store.splice(self._store.core(), store.constants, loaded=True), self._store.output_names())
        fresh._adopt(store, self._untouched_model())
        return fresh

    def _untouched_model(self) -> ModelProto | None:
        return self._model if self._store.revision == self._model_revision else None

    # --- other forms ------------------------------------------------------------------------------------------------

    @property
    def constants(self) -> ConstantStore:
        """The elements of the graph's weights by digest, as rlflow keeps them."""
        return self._store.constants

    def to_rlflow(self) -> Graph:
        """The immutable rlflow graph; its weights are in :attr:`constants`."""
        return self._store.core()

    # --- prices -----------------------------------------------------------------------------------------------------

    def print_measurements(self) -> None:
        """From now on ``cost()`` writes the price of each region to standard output."""
        self._print = True

    def cost(self) -> float:
        """Estimated milliseconds: the analytic price of the fused regions (no clock, the same on every machine)."""
        from rlflow.price import make

        model = make("analytic")
        report = model.cost(self._store.core())
        if self._print:
            for region in report.per_region:
                sys.stdout.write(f"{region.ms or 0.0:.6f} ms  {' '.join(region.operators)}\n")
        return float(report.total_ms)

    def run_time(self, *, dims: Mapping[str, int] | None = None, threads: int = 1) -> float:
        """Measured milliseconds of the whole graph in ONNX Runtime: the median of up to 100 runs after a warm-up.

        Raises RuntimeUnavailable where ONNX Runtime is missing, UsageError for a symbolic dimension without value.
        """
        import numpy as np

        from rlflow.compat.taso.onnx_models import export_onnx
        from rlflow.graph.ranges import input_ranges
        from rlflow.runtime import RuntimeOptions, Worker, unavailable_reason
        from rlflow.verify import make_inputs

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
        from rlflow.compat.taso.search import optimize

        return optimize(self, alpha, budget, print_subst, **options)

    def __repr__(self) -> str:
        counts = len(self.get_operator_list()), len(self.inputs()), len(self.outputs())
        return "<PyGraph of {} operators, {} inputs, {} outputs>".format(*counts)


def new_graph(print_measurements: bool = False, *, seed: int = 0) -> PyGraph:
    """An empty graph. ``seed``: of weights that are made without data."""
    return PyGraph(print_measurements, seed)


def from_rlflow(source: Graph | ImportedModel, constants: ConstantStore | None = None) -> PyGraph:
    """A taso graph of an rlflow graph, or of a model that ``rlflow.load`` read (with its weights).

    ``constants``: where the weights of a bare graph are; weights that nobody has are drawn when the graph is written.
    """
    from rlflow.frontends import ConstantStore, ImportedModel
    from rlflow.graph import Graph

    if isinstance(source, ImportedModel):
        names = [] if source.passthrough else [info.name for info in source.origin.model.graph.output]
        return PyGraph._of(source, source.baseline(), names)
    if not isinstance(source, Graph):
        raise UsageError(f"taso: from_rlflow() got {type(source).__name__}; expected an rlflow Graph or ImportedModel.")
    graph = PyGraph()
    store = Store(0, ConstantStore() if constants is None else constants)
    store.pin(store.splice(source, store.constants, loaded=True))
    graph._adopt(store)
    return graph
