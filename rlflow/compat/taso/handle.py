"""What a handle on a graph is: the graph that grows by method calls, its inputs and outputs, other forms, its price."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from rlflow.compat.taso.arguments import natural
from rlflow.compat.taso.inspection import Inspection
from rlflow.compat.taso.operator_calls import Operators
from rlflow.compat.taso.store import PyTensor, Store

if TYPE_CHECKING:
    from onnx import ModelProto

    from rlflow.frontends import ConstantStore, ImportedModel
    from rlflow.graph import Graph
    from rlflow.report import Report

H = TypeVar("H", bound="GraphHandle")


class GraphHandle(Operators, Inspection):
    """A graph that grows by method calls. Its outputs are the results that nothing reads, in the order of creation.

    ``print_measurements``: ``cost()`` writes the price of each region to standard output. ``seed``: of weights that
    are made without data. ``report``: what ``optimize`` did, on the graph that it returned.
    """

    report: Report | None = None

    def __init__(self, print_measurements: bool = False, seed: int = 0) -> None:
        self._adopt(Store(natural(seed, "taso: new_graph(): seed")))
        self._print = bool(print_measurements)

    def _adopt(self, store: Store, model: ModelProto | None = None) -> None:
        self._store = store
        self._model, self._model_revision = model, store.revision

    @classmethod
    def _of(cls: type[H], imported: ImportedModel, model: ModelProto | None, names: Iterable[str] = ()) -> H:
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

    def copy(self: H) -> H:
        """A second graph with the same operators and outputs; it shares nothing that can change."""
        fresh = type(self)(self._print)
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

    def __repr__(self) -> str:
        counts = len(self.get_operator_list()), len(self.inputs()), len(self.outputs())
        return f"<{type(self).__name__} of {{}} operators, {{}} inputs, {{}} outputs>".format(*counts)
