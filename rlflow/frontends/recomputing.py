"""Nodes that are computed once more for those that read them late, as ONNX."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rlflow.footprint import Flow
from rlflow.footprint.recompute import Again
from rlflow.frontends import scopes
from rlflow.frontends.assembly import NODE_METADATA_IR, RULE_KEY
from rlflow.frontends.emitter import UniqueNames

__all__ = ["with_recomputed"]

#: What new nodes say of themselves.
MAKER = "computed-again"


def with_recomputed(model: onnx.ModelProto, flow: Flow, copies: Sequence[Again]) -> onnx.ModelProto:
    """``model``, of which ``flow`` was read, with these nodes computed again; what cannot be written so is left out.

    A runtime joins nodes that do the same to the same values. So a copy reads one of its inputs through a view that
    changes nothing, the second copy of a node through two, and so on. ONNX Runtime walks depth first from the outputs,
    and to the input first whose node came last in the file; so a copy stands right behind the node that it repeats.
    """
    written = onnx.ModelProto()
    written.CopyFrom(model)
    copier = _Copier(written, flow)
    behind: dict[int, list[onnx.NodeProto]] = {}
    for copy in copies:
        behind.setdefault(copy.node, []).extend(copier.nodes_of(copy))
    nodes = [node for place, own in enumerate(written.graph.node) for node in (_copy(own), *behind.get(place, ()))]
    del written.graph.node[:]
    written.graph.node.extend(nodes)
    return written


class _Copier:
    """Writes copies, and lets their readers read them; ``model`` is changed in place."""

    def __init__(self, model: onnx.ModelProto, flow: Flow) -> None:
        self._model, self._flow = model, flow
        taken = {one.name for one in (*model.graph.initializer, *model.graph.input)}
        scopes.walk(model.graph, lambda node: taken.update((node.name, *node.input, *node.output)))
        self._names = UniqueNames(taken)
        self._times: Counter[int] = Counter()

    def nodes_of(self, copy: Again) -> Iterator[onnx.NodeProto]:
        """The views and the copy; nothing where no input has axes, or the body of a reader reads the value."""
        source, graph = self._model.graph.node[copy.node], self._model.graph
        given = next((name for name in source.input if self._flow.shapes.get(name)), None)
        if given is None or any(source.output[0] not in graph.node[reader].input for reader in copy.readers):
            return
        self._times[copy.node] += 1
        name = given
        for _ in range(self._times[copy.node]):
            name, seen = self._names.fresh("same"), name
            yield self._marked(helper.make_node("Reshape", [seen, self._same(len(self._flow.shapes[given]))], [name]))
        again, made = _copy(source), self._names.fresh("again")
        _rename(again, given, name)
        again.output[0] = made
        yield self._marked(again)
        for reader in copy.readers:
            _rename(graph.node[reader], source.output[0], made)

    def _same(self, rank: int) -> str:
        """A shape that says of each axis that it stays."""
        zeros = numpy_helper.from_array(np.zeros(rank, np.int64), self._names.fresh("same"))
        self._model.graph.initializer.append(zeros)
        return zeros.name

    def _marked(self, node: onnx.NodeProto) -> onnx.NodeProto:
        node.name = self._names.fresh(node.op_type)
        if self._model.ir_version >= NODE_METADATA_IR:
            helper.set_model_props(node, {RULE_KEY: MAKER})
        return node


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    return copied


def _rename(node: onnx.NodeProto, name: str, other: str) -> None:
    for place, given in enumerate(node.input):
        if given == name:
            node.input[place] = other
