"""Every node, graph and tensor of a model, wherever in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import onnx

from rlflow.frontends import scopes


class ModelParts(NamedTuple):
    """What a model is made of. ``graphs``: the graph, training graphs, and all bodies; ``nodes``: theirs and those of
    functions; ``tensors``: all, and whether they are something else than initialisers of the main graph.
    """

    graphs: list[onnx.GraphProto]
    nodes: list[onnx.NodeProto]
    tensors: list[tuple[onnx.TensorProto, bool]]


def parts(model: onnx.ModelProto) -> ModelParts:
    """All parts of a model, which is gone through once."""
    training = [graph for info in model.training_info for graph in (info.initialization, info.algorithm)]
    outer = [model.graph, *training]
    nodes = [node for scope in (*outer, *model.functions) for node in scopes.all_nodes(scope.node)]
    graphs = [*outer, *(body for node in nodes for body in scopes.bodies(node))]
    inner = [tensor for graph in graphs[1:] for tensor in graph.initializer]
    inner += [part for graph in graphs for one in graph.sparse_initializer for part in (one.values, one.indices)]
    attributes = [attribute for node in nodes for attribute in node.attribute]
    attributes += [attribute for function in model.functions for attribute in function.attribute_proto]
    inner += [tensor for attribute in attributes for tensor in _of_attribute(attribute)]
    tensors = [(one, False) for one in model.graph.initializer]
    return ModelParts(graphs, nodes, tensors + [(one, True) for one in inner])


def _of_attribute(attribute: onnx.AttributeProto) -> Iterator[onnx.TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    for one in (*sparse, *attribute.sparse_tensors):
        yield one.values
        yield one.indices
