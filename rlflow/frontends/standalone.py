"""Any core graph as a model of its own: for measuring regions, for evaluating rules, and for tests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import prod, sqrt

import numpy as np
import onnx
from onnx import helper

from rlflow.errors import GraphError
from rlflow.frontends import canonical, symbolic
from rlflow.frontends.constants import (
    Array,
    ConstantStore,
    Template,
    array_to_proto,
    constant_array,
    is_float,
    numpy_dtype,
)
from rlflow.frontends.emitter import Emitter, UniqueNames, added_domains
from rlflow.frontends.symbolic import Dim
from rlflow.graph import Graph

DEFAULT_OPSET = 21
# The newest container version that every deployed runtime of the last years reads.
DEFAULT_IR = 10


def graph_to_model(
    graph: Graph,
    constants: ConstantStore | None = None,
    *,
    seed: int = 0,
    opset: int | None = None,
    widen: bool = False,
) -> onnx.ModelProto:
    """A checked, stand-alone model of a core graph: inputs by their names, outputs ``output_0``, ``output_1``, ….

    Constants that ``constants`` does not have (and that are too large for the core to keep) become seeded random ones
    that depend on digest and seed only, so that one constant has the same elements in every graph. ``opset``: 21 or,
    where newer operators are used, the first that has them; opaque nodes need ``constants`` (it holds their originals)
    and set the opset themselves. ``widen``: floats in double precision throughout. Raises GraphError for an opaque node
    whose original is not in ``constants``, and for a node that the opset cannot express.
    """
    templates = _templates(graph, constants)
    emitter = Emitter(graph, _opset(graph, templates, opset), UniqueNames(), constants, widen=widen)
    inputs = [_input(emitter, node) for node in graph.inputs()]
    outputs = [_output(emitter, index, value) for index, value in enumerate(graph.outputs())]
    variances = _variances(graph)
    for node in graph.order():
        _emit(emitter, node, templates, seed, variances)
    _alias_outputs(emitter, outputs)
    model = helper.make_model(
        helper.make_graph(emitter.nodes, "rlflow", inputs, [info for info, _ in outputs], emitter.initializers),
        opset_imports=[helper.make_opsetid(*entry) for entry in _imports(templates, emitter)],
        ir_version=DEFAULT_IR,
        producer_name="rlflow",
    )
    for template in list(templates.values())[:1]:
        model.functions.extend(template.functions)
    _check(model)
    return model


def _check(model: onnx.ModelProto) -> None:
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) > 1 << 30:
        return  # protobuf cannot serialise it for the checker
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise GraphError(f"While writing a graph as a model: onnx refuses it: {error}") from error


def _templates(graph: Graph, constants: ConstantStore | None) -> dict[int, Template]:
    found = {}
    for node in graph.order():
        if graph.op(node) != "Opaque":
            continue
        attrs = graph.attrs(node)
        template = constants.template(attrs["payload"]) if constants is not None else None
        if template is None:
            raise GraphError(
                f"While writing a graph as a model: the original of its opaque node {node} ({attrs['name']}) "
                "is not known; pass the constant store of the model that it came from."
            )
        found[node] = template
    return found


def _opset(graph: Graph, templates: dict[int, Template], opset: int | None) -> int:
    if templates:
        versions = {dict(template.opsets).get("", DEFAULT_OPSET) for template in templates.values()}
        if len(versions) > 1 or (opset is not None and opset not in versions):
            raise GraphError(
                f"While writing a graph as a model: its opaque nodes are of opsets {sorted(versions)}; expected one."
            )
        return versions.pop()
    rows = (canonical.row(graph.op(node)) for node in graph.order())
    return opset or max([DEFAULT_OPSET, *(int(row["since"]) for row in rows if row is not None)])


def _imports(templates: dict[int, Template], emitter: Emitter) -> list[tuple[str, int]]:
    versions = {"": emitter.opset, **added_domains(emitter.nodes)}
    for template in templates.values():
        versions.update({domain: version for domain, version in template.opsets if domain})
    return sorted(versions.items())


def _input(emitter: Emitter, node: int) -> onnx.ValueInfoProto:
    graph = emitter.graph
    value = graph.node_outputs(node)[0]
    name = graph.input_name(node)
    if not emitter.names.take(name):
        raise GraphError(f"While writing a graph as a model: two inputs have the name '{name}'.")
    emitter.value_names[value] = name
    return value_info(name, emitter.element_type(graph.dtype(value)), graph.shape(value))


def value_info(name: str, dtype: int, shape: Sequence[Dim] | None) -> onnx.ValueInfoProto:
    """A ValueInfoProto; a dimension that is one name is written as such, other expressions as unknown. Raises
    GraphError without a type.
    """
    if dtype == 0:
        raise GraphError(f"While writing a graph as a model: '{name}' is no tensor, or its element type is not known.")
    dims = None if shape is None else [_declared(dim) for dim in shape]
    return helper.make_tensor_value_info(name, dtype, dims)


def _declared(dim: Dim) -> Dim:
    if not isinstance(dim, str):
        return dim
    names = symbolic.names([dim])
    return names[0] if symbolic.parse(dim) == {(names[0],): 1} else None


def _output(emitter: Emitter, index: int, value: int) -> tuple[onnx.ValueInfoProto, int]:
    graph, name = emitter.graph, f"output_{index}"
    while not emitter.names.take(name):
        name += "_"
    if value not in emitter.value_names:
        emitter.value_names[value] = name
    return value_info(name, emitter.element_type(graph.dtype(value)), graph.shape(value)), value


def _alias_outputs(emitter: Emitter, outputs: Sequence[tuple[onnx.ValueInfoProto, int]]) -> None:
    for info, value in outputs:
        own = emitter.value_names[value]
        if own != info.name:
            emitter.nodes.append(helper.make_node("Identity", [own], [info.name], name=info.name))


def _emit(emitter: Emitter, node: int, templates: dict[int, Template], seed: int, variances: frozenset[int]) -> None:
    graph, op = emitter.graph, emitter.graph.op(node)
    if op == "Input":
        return
    names = []
    for value in graph.node_outputs(node):
        if value not in emitter.value_names:
            emitter.value_names[value] = emitter.names.fresh(op)
        names.append(emitter.value_names[value])
    if op == "Constant":
        array = constant_array(graph, node, emitter.constants)
        if array is None:
            array = random_constant(graph, node, seed, positive=node in variances)
        emitter.initializers.append(
            array_to_proto(emitter.widened(array, graph.dtype(graph.node_outputs(node)[0])), names[0])
        )
    elif op == "Opaque":
        emitter.emit_template(templates[node], node, names, names[0])
    else:
        emitter.emit(node, names, names[0])


def _variances(graph: Graph) -> frozenset[int]:
    """Constants that a BatchNormalization takes as variance."""
    found = set()
    for node in graph.order():
        if graph.op(node) == "BatchNormalization":
            found.add(graph.producer(graph.node_inputs(node)[4]))
    return frozenset(found)


def random_constant(graph: Graph, node: int, seed: int, positive: bool = False) -> Array:
    """Elements for a Constant node that nobody has, from its digest and ``seed`` alone, within the facts that the core
    knows about it.

    Floats are normal, scaled by 1 / sqrt(fan-in) (He et al. 2015) taken from the shape; uniform in [0.5, 1.5) where
    ``positive``.
    """
    info = graph.attrs(node)["value"]
    shape = [int(dim) for dim in info["shape"]]
    words = np.frombuffer(hashlib.blake2b(f"{seed}:{info['digest']}".encode(), digest_size=16).digest(), np.uint32)
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence([int(word) for word in words])))
    low, high, uniform, finite = info["facts"] or (-np.inf, np.inf, False, False)
    if uniform and finite:
        array = np.full(shape, low)
    elif not is_float(info["dtype"]):
        top = int(min(high, 1 << 31)) if np.isfinite(high) else 0
        array = random.integers(int(max(low, 0)) if np.isfinite(low) else 0, top, size=shape, endpoint=True)
    elif positive or low > 0:
        array = np.clip(0.5 + random.random(shape), low if low > 0 else 0, high)
    else:
        array = np.clip(random.standard_normal(shape) / sqrt(max(_fan_in(shape), 1)), low, high)
    return np.asarray(array).astype(numpy_dtype(info["dtype"]))


def _fan_in(shape: Sequence[int]) -> int:
    """What one output sums over: the rows of a [K, N] matrix, all but the first dimension of a convolution's weight."""
    if len(shape) < 2:
        return 1
    return shape[0] if len(shape) == 2 else prod(shape[1:])
