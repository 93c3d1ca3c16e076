"""Regions as graphs of their own, so that they can be measured."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from rlflow._core import Pricer, Region
from rlflow.errors import CostError, GraphError
from rlflow.graph import Graph, GraphBuilder
from rlflow.price.feed_specs import NUMPY_NAMES

__all__ = ["LAYOUT_STARTERS", "Pricer", "Region", "dimension_names", "extract", "input_name", "operators", "surrounded"]

#: Operators that turn their data input to the blocked layout by themselves.
LAYOUT_STARTERS = frozenset({"Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Pad"})
_LOOK_UPS = frozenset({"Gather", "GatherND", "GatherElements", "Slice"})


def operators(graph: Graph, region: Region) -> tuple[str, ...]:
    """The region's operators, producers first; opaque ones by their own name."""
    found = []
    for node in region.nodes:
        op = graph.op(node)
        found.append(graph.attrs(node).get("name", op) if op == "Opaque" else op)
    return tuple(found)


def input_name(index: int) -> str:
    """Name of the input that stands for the region's operand ``region.inputs[index]``."""
    return f"x{index}"


def extract(graph: Graph, region: Region, dims: Mapping[str, int] | None = None) -> Graph:
    """The region as a graph: computed operands become inputs (``input_name``), constant ones constants, and what the
    region's readers read becomes the outputs, in the order of ``region.outputs``.

    Small constants keep their elements. A constant that is itself computed (a folded weight) becomes an unknown one of
    its type; a computed shape whose elements are known becomes a constant. Symbolic dimensions stay, unless ``dims``
    is given: then every one gets its value there, or 1.
    Raises CostError for a region that cannot stand alone: an opaque node, or an operand of unknown rank.
    """
    return _Extraction(graph, region, dims).finish()


def surrounded(
    graph: Graph, region: Region, block: int, dims: Mapping[str, int] | None = None
) -> tuple[Graph, list[int]]:
    """:func:`extract`, with something in front of operands that the runtime has in its blocked layout, so that they are
    in that layout here too; and the values of ``graph`` for which that was done.

    A residual sum or a normalisation is fused only where its operands are blocked. What is put in front is a 1x1
    pooling, or a 1x1 depthwise convolution where the channels do not fill whole blocks of ``block``.
    """
    extraction = _Extraction(graph, region, dims, block=block)
    return extraction.finish(), extraction.fronted


def dimension_names(graph: Graph, values: Iterable[int]) -> list[str]:
    """Names of the symbolic dimensions of these values, sorted."""
    from rlflow.frontends import symbolic

    found: set[str] = set()
    for value in values:
        found.update(symbolic.names(graph.shape(value) or ()))
    return sorted(found)


def reads_plain(graph: Graph, region: Region, block: int) -> bool:
    """Whether the region's convolution has so few input channels that it reads the plain layout."""
    for node in region.nodes:
        if graph.op(node) == "Conv" and graph.attrs(node).get("group", 1) == 1:
            weight = graph.shape(graph.node_inputs(node)[1]) or []
            return len(weight) == 4 and isinstance(weight[1], int) and weight[1] < block
    return False


def weight_bytes(graph: Graph, region: Region) -> float:
    """Bytes of the constants that the region reads, tables that it looks rows up in left out."""
    total = 0.0
    for value in region.inputs:
        if not graph.is_const(graph.producer(value)):
            continue
        inside = [(node, slot) for node, slot in graph.users(value) if node in region.nodes]
        if all(slot == 0 and graph.op(node) in _LOOK_UPS for node, slot in inside):
            continue
        shape = graph.shape(value) or []
        name = NUMPY_NAMES.get(graph.dtype(value))
        if name is not None and all(isinstance(dim, int) for dim in shape):
            total += float(np.prod(shape)) * np.dtype(name).itemsize
    return total


class _Extraction:
    """One region on its way into a builder."""

    def __init__(self, graph: Graph, region: Region, dims: Mapping[str, int] | None, block: int = 0) -> None:
        self.graph, self.region, self.dims, self.block = graph, region, dims, block
        self.builder = GraphBuilder()
        self.fronted: list[int] = []

    def finish(self) -> Graph:
        """The extracted graph."""
        inner = self._needs_front() if self.block else set()
        values: dict[int, int] = {}
        for index, value in enumerate(self.region.inputs):
            values[value] = self._operand(value, index)
            if value in inner:
                values[value] = self._front(value, values[value])
        for node in self.region.nodes:
            self._copy(node, values)
        result = self.builder.finish([values[value] for value in self.region.outputs])
        if self.dims is None:
            return result
        names = dimension_names(result, (value for node in result.order() for value in result.node_outputs(node)))
        return result.bind({name: self.dims.get(name, 1) for name in names}) if names else result

    def _operand(self, value: int, index: int) -> int:
        graph, producer = self.graph, self.graph.producer(value)
        dtype, shape = graph.dtype(value), graph.shape(value)
        if dtype == 0 or shape is None:
            raise CostError(
                f"A region cannot be priced by itself: the type of its operand {index} is {graph.type_text(value)}, "
                "expected a tensor of known rank."
            )
        if graph.op(producer) == "Constant":
            info = graph.attrs(producer)["value"]
            return self.builder.constant(dtype, shape, info["digest"], info["values"], info["facts"])
        known = self._known(value)
        if known is not None:
            return self.builder.constant(dtype, shape, _digest(f"{dtype}:{shape}:{known}"), known, None)
        if not graph.is_const(producer):
            return self.builder.input(input_name(index), dtype, shape)
        if any(not isinstance(dim, int) for dim in shape):
            raise CostError(
                f"A region cannot be priced by itself: its constant operand {index} has the type "
                f"{graph.type_text(value)}, expected numbers for all dimensions."
            )
        return self.builder.constant(dtype, shape, _digest(f"folded:{index}:{dtype}:{shape}"), None, None)

    def _known(self, value: int) -> list[int] | None:
        """The elements of a small integer tensor, symbols replaced where values are given for them."""
        elements = self.graph.data(value)
        if elements is None or any(element is None for element in elements):
            return None
        if all(isinstance(element, int) for element in elements):
            return list(elements)
        if self.dims is None:
            return None
        from rlflow.frontends import symbolic

        values = {name: self.dims.get(name, 1) for name in symbolic.names(elements)}
        return [symbolic.evaluate(element, values) for element in elements]

    def _copy(self, node: int, values: dict[int, int]) -> None:
        graph = self.graph
        if graph.op(node) == "Opaque":
            name = graph.attrs(node).get("name", "its operator")
            raise CostError(f"A region cannot be priced by itself: {name} is carried opaquely.")
        inputs = [-1 if value < 0 else values[value] for value in graph.node_inputs(node)]
        outputs = graph.node_outputs(node)
        try:
            first = self.builder.add(graph.op(node), graph.attrs(node), inputs, len(outputs))
        except GraphError as error:
            raise CostError(f"A region cannot be priced by itself: {error}") from error
        for offset, value in enumerate(outputs):
            values[value] = first + offset

    def _needs_front(self) -> set[int]:
        """Computed operands that reach something else than the data input of a convolution or a pooling."""
        graph, needed = self.graph, set()
        for node in self.region.nodes:
            for slot, value in enumerate(graph.node_inputs(node)):
                if value not in self.region.inputs or graph.is_const(graph.producer(value)):
                    continue
                if slot > 0 or graph.op(node) not in LAYOUT_STARTERS:
                    needed.add(value)
        return needed

    def _front(self, value: int, inner: int) -> int:
        shape = self.graph.shape(value)
        channels = shape[1] if shape is not None and len(shape) == 4 else None
        if not isinstance(channels, int) or channels % 4:
            return inner
        self.fronted.append(value)
        window = {"kernel_shape": [1, 1], "pads": [0, 0, 0, 0], "strides": [1, 1]}
        if channels % self.block == 0:
            return self.builder.add("MaxPool", window, [inner], 1)
        weight = self.builder.constant(1, [channels, 1, 1, 1], _digest(f"front:{value}:{channels}"), None, None)
        return self.builder.add("Conv", {**window, "dilations": [1, 1], "group": channels}, [inner, weight])


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
