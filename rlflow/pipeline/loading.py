"""Stage 1: the model as it came, its graph, and the rules that apply to it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow import search as _search
from rlflow.deployment import Export, shared_weights, source_of
from rlflow.errors import ModelError, UsageError
from rlflow.library import for_opset, load_library
from rlflow.search import TraceStep
from rlflow.specs import did_you_mean

if TYPE_CHECKING:
    from onnx import ModelProto

    from rlflow.equivalence.sizes import Extent
    from rlflow.frontends.storage import SharedWeights
    from rlflow.options import Options
    from rlflow.pipeline.context import Context

__all__ = ["Loaded", "load"]


@dataclass(frozen=True)
class Loaded:
    """A model that can be searched. ``given`` is what the user passed, ``source`` what the runtime loads for it.

    ``library`` is ``None`` for a model that is carried through as it came. ``weights``: the file that the large weights
    of the model and its rewrites are shared in, where they are many. ``extents``: the sizes of open dimensions that the
    user gave.
    """

    given: Any
    imported: Any
    source: bytes | str
    weights: SharedWeights | None
    library: Any
    exports: Exports
    extents: Mapping[str, Extent] = field(default_factory=dict)

    @property
    def graph(self) -> Any:
        """The graph as imported."""
        return self.imported.graph

    @property
    def name(self) -> str:
        """What a report calls the model."""
        if isinstance(self.given, (str, os.PathLike)):
            return str(self.given)
        return self.imported.origin.model.graph.name or "<model>"

    @property
    def size(self) -> int:
        """Bytes of the model as it came."""
        if self.imported.source_path is not None:
            return os.path.getsize(self.imported.source_path)
        return len(self.given) if isinstance(self.given, bytes) else self.imported.origin.model.ByteSize()


def load(model: Any, context: Context) -> Loaded:
    """Read the model and the rules; raises :class:`ModelError` and :class:`UsageError` for what cannot be searched."""
    from rlflow.frontends import load_model

    options = context.options
    context.stage("loading", "loading the model")
    imported = load_model(model, keep_initializer_inputs=options.keep_initializer_inputs, freeze=options.freeze or None)
    context.notes.extend(imported.notes)
    source = source_of(imported, model)
    if imported.passthrough is not None:
        return Loaded(model, imported, source, None, None, Exports(imported, None, None, context))
    extents = _extents(options, imported)
    _check_weights(imported)
    weights = shared_weights(imported, options.place, lambda: context.folder)
    if weights is not None and not options.freeze:
        source = weights.write(weights.slim(imported.origin.model), "original.onnx")
    library, left_out = for_opset(load_library(options.chosen_rules), imported.origin.opset)
    context.notes.extend(left_out)
    return Loaded(model, imported, source, weights, library, Exports(imported, library, weights, context), extents)


def _extents(options: Options, imported: Any) -> dict[str, Extent]:
    """The sizes that the user gives to open dimensions, by name or by the shapes of inputs."""
    from rlflow.equivalence import sizes
    from rlflow.frontends import symbolic

    known = imported.origin.symbols | imported.origin.unnamed
    unknown = sorted(set(options.dims) - known)
    if unknown:
        near = did_you_mean(unknown[0], known)
        raise UsageError(f"The model has no open dimension {unknown[0]!r} to measure at a size. {near}")
    graph, shapes = imported.graph, {}
    for node in graph.inputs():
        dims = graph.shape(graph.node_outputs(node)[0])
        named = None if dims is None else [symbolic.unquote(dim) if isinstance(dim, str) else dim for dim in dims]
        shapes[graph.input_name(node)] = named
    found = sizes.of_shapes(options.shapes, shapes)
    for name, extent in options.extents.items():
        if found.setdefault(name, extent) != extent:
            raise UsageError(f"The dimension {name!r} gets one size by --dim and another by --shape; give one of them.")
    return found


def _check_weights(imported: Any) -> None:
    """Refuse NaN weights: no output could be compared with the original's. Infinite ones (masks) are fine."""
    for name, constant in imported.origin.constants.items():
        array = imported.constants[constant.digest]
        if array.dtype.kind == "f" and array.size and np.isnan(array.min()):
            raise ModelError(
                f"While checking the model: the weight '{name}' holds NaN, so its outputs say nothing and no "
                "result could be compared with the original's; repair the weight, or leave the model as it is."
            )


class Exports:
    """Graphs of the search as ONNX, by the names of the original."""

    def __init__(self, imported: Any, library: Any, weights: SharedWeights | None, context: Context) -> None:
        self._imported, self._library, self._weights, self._context = imported, library, weights, context
        self._replayed: dict[tuple[TraceStep, ...], Any] = {}

    @property
    def external(self) -> bool:
        """Whether tensors of the original, wherever in it, are in other files."""
        return bool(self._imported.external)

    def export(self, graph: Any, trace: Sequence[TraceStep] | None = None) -> Export:
        """``graph`` as ONNX; with its trace, each new node carries the name of the rule that made it."""
        from rlflow.frontends import save_model
        from rlflow.frontends.exporter import slim_model

        def build() -> ModelProto:
            if self._weights is None:
                return save_model(self._imported, graph, rules=self._makers(trace or ()))
            return slim_model(self._imported, graph, self._weights, rules=self._makers(trace or ()))

        def save(path: str) -> ModelProto:
            return save_model(self._imported, graph, path, rules=self._makers(trace or ()))

        return Export(build, lambda: self._context.folder, save, self.external, self._weights)

    def prefixes(self, trace: Sequence[TraceStep]) -> list[Any]:
        """The graph after each step; finalists share the beginnings of their traces, which are replayed once."""
        from rlflow.rewrite import State, compiled

        if not self._replayed:
            self._replayed[()] = State(self._imported.graph, compiled(self._library))
        graphs = []
        for length in range(1, len(trace) + 1):
            prefix = tuple(trace[:length])
            if prefix not in self._replayed:
                self._replayed[prefix] = next(_search.replay_states(self._replayed[prefix[:-1]], prefix[-1:]))
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
