"""Every node, graph and tensor of a model, wherever in it."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from rlflow.frontends import scopes


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """All nodes: of the graph, of training graphs, of functions, and of all bodies below them."""
    for graph in _graphs(model):
        yield from scopes.all_nodes(graph.node)
    for function in model.functions:
        yield from scopes.all_nodes(function.node)


def _graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    training = [graph for info in model.training_info for graph in (info.initialization, info.algorithm)]
    return [model.graph, *training]


def all_graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    """The graph, training graphs, and all bodies."""
    return [*_graphs(model), *(body for node in nodes(model) for body in scopes.bodies(node))]


def tensors(model: onnx.ModelProto) -> Iterator[tuple[onnx.TensorProto, bool]]:
    """All tensors, and whether they are something else than initialisers of the main graph."""
    yield from ((tensor, False) for tensor in model.graph.initializer)
    for graph in all_graphs(model):
        if graph is not model.graph:
            yield from ((tensor, True) for tensor in graph.initializer)
        for sparse in graph.sparse_initializer:
            yield from ((part, True) for part in (sparse.values, sparse.indices))
    for node in nodes(model):
        for attribute in node.attribute:
            yield from ((tensor, True) for tensor in _of_attribute(attribute))
    for function in model.functions:
        for attribute in function.attribute_proto:
            yield from ((tensor, True) for tensor in _of_attribute(attribute))


def _of_attribute(attribute: onnx.AttributeProto) -> Iterator[onnx.TensorProto]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    for one in (*sparse, *attribute.sparse_tensors):
        yield one.values
        yield one.indices
