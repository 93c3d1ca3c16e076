"""Graphs of the search as ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlflow.deployment import Export
from rlflow.search import TraceStep, replay_states

if TYPE_CHECKING:
    from onnx import ModelProto

    from rlflow.frontends.storage import SharedWeights
    from rlflow.pipeline.context import Context

__all__ = ["Exports"]


class Exports:
    """Graphs of the search as ONNX, by the names of the original. ``older``: the opset that they are written for, where
    that is faster than the model's own.
    """

    def __init__(
        self,
        imported: Any,
        ruleset: Any,
        weights: SharedWeights | None,
        context: Context,
        older: int | None = None,
    ) -> None:
        self._imported, self._ruleset, self._weights, self._context = imported, ruleset, weights, context
        self.older = older
        self._replayed: dict[tuple[TraceStep, ...], Any] = {}

    @property
    def external(self) -> bool:
        """Whether tensors of the original, wherever in it, are in other files."""
        return bool(self._imported.external)

    def as_imported(self) -> Export:
        """The model without rewrites, for its own opset: what a search must beat."""
        return self._export(self._imported.graph, (), None)

    def export(self, graph: Any, trace: Sequence[TraceStep] | None = None) -> Export:
        """``graph`` as ONNX; with its trace, each new node carries the name of the rule that made it."""
        return self._export(graph, trace or (), self.older)

    def _export(self, graph: Any, trace: Sequence[TraceStep], opset: int | None) -> Export:
        from rlflow.frontends import save_model
        from rlflow.frontends.exporter import slim_model

        def build() -> ModelProto:
            if self._weights is None:
                return save_model(self._imported, graph, rules=self._makers(trace), opset=opset)
            return slim_model(self._imported, graph, self._weights, rules=self._makers(trace), opset=opset)

        def save(path: str) -> ModelProto:
            return save_model(self._imported, graph, path, rules=self._makers(trace), opset=opset)

        return Export(build, lambda: self._context.folder, save, self.external, self._weights)

    def edited(self, build: Callable[[], ModelProto]) -> Export:
        """What ``build`` makes of the message of an export of this model; its weights are where the export's are."""
        from rlflow.frontends import storage

        def save(path: str) -> ModelProto:
            return storage.write(build(), path, self._imported.origin.base_dir, self.external)

        return Export(build, lambda: self._context.folder, save, self.external, self._weights)

    def prefixes(self, trace: Sequence[TraceStep]) -> list[Any]:
        """The graph after each step; finalists share the beginnings of their traces, which are replayed once."""
        from rlflow.rewrite import State

        if not self._replayed:
            self._replayed[()] = State(self._imported.graph, self._ruleset)
        graphs = []
        for length in range(1, len(trace) + 1):
            prefix = tuple(trace[:length])
            if prefix not in self._replayed:
                self._replayed[prefix] = next(replay_states(self._replayed[prefix[:-1]], prefix[-1:]))
            graphs.append(self._replayed[prefix].graph)
        return graphs

    def _makers(self, trace: Sequence[TraceStep]) -> dict[int, str]:
        """Node id -> rule that made it."""
        makers: dict[int, str] = {}
        known = set(self._imported.graph.order())
        for (rule, _), graph in zip(trace, self.prefixes(trace) if trace else (), strict=True):
            now = set(graph.order())
            makers.update(dict.fromkeys(now - known, rule))
            known = now
        return makers
