"""What a taso graph is made of: operators in the order of their creation, over one native builder.

Every operator is handed to the core at once, so that shapes are inferred and contradictions refused in the call that
makes them. The core shares equal nodes; here each call keeps its own operator and tensors, as TASO's users expect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rlflow.compat.taso.names import BOOL, FLOAT, FLOATS, onnx_datatype
from rlflow.errors import GraphError, UsageError
from rlflow.graph import Graph, GraphBuilder

if TYPE_CHECKING:
    from rlflow.frontends import ConstantStore

Dim = int | str | None
_MOST_ELEMENTS = 2**38  # 1 TiB of float32
_FIRST_GUID = 100  # TASO keeps the smaller numbers for itself


class PyTensor:
    """A value of one graph; it stays valid as long as it is held, whatever is done to the graph."""

    __slots__ = ("_guid", "_index", "_owner", "_value")

    def __init__(self, owner: Store, guid: int, index: int, value: int) -> None:
        self._owner, self._guid, self._index, self._value = owner, guid, index, value

    @property
    def nDim(self) -> int | None:  # noqa: N802 - TASO's name
        """The rank, or None where it is not known."""
        shape = self.shape
        return None if shape is None else len(shape)

    def dim(self, idx: int) -> Dim:
        """Extent of axis ``idx``: an integer, a symbol, or None where unknown. Raises UsageError out of range."""
        shape = self.shape
        if shape is None or not isinstance(idx, int) or not -len(shape) <= idx < len(shape):
            rank = "an unknown rank" if shape is None else f"rank {len(shape)}"
            raise UsageError(f"taso: PyTensor.dim({idx!r}) of a tensor of {rank}: there is no such axis.")
        return shape[idx]

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """All extents, or None for an unknown rank."""
        shape = self._owner.builder.shape(self._value)
        return None if shape is None else tuple(shape)

    @property
    def dtype(self) -> int:
        """ONNX's number of the element type; 0 where unknown."""
        return self._owner.builder.dtype(self._value)

    @property
    def tensor(self) -> tuple[int, int]:
        """Which value this is: (guid of its operator, output index). TASO had a pointer here."""
        return self._guid, self._index

    def __repr__(self) -> str:
        shape = self.shape
        return f"<PyTensor {self._guid}:{self._index} {'?' if shape is None else list(shape)}>"


@dataclass(frozen=True, eq=False)
class Record:
    """One operator: its guid, type, attributes, operands (None where absent) and results."""

    guid: int
    type: str
    attrs: Mapping[str, Any]
    inputs: tuple[PyTensor | None, ...]
    outputs: tuple[PyTensor, ...]
    name: str | None = None
    loaded: bool = False  # came with a model, which says itself which of its values are outputs


class Store:
    """Operators, weights and outputs of one graph. ``seed`` decides the weights that are made without data."""

    def __init__(self, seed: int = 0, constants: ConstantStore | None = None) -> None:
        from rlflow.frontends import ConstantStore

        self.builder = GraphBuilder()
        self.constants = ConstantStore() if constants is None else constants
        self.seed = seed
        self.records: dict[int, Record] = {}
        self.revision = 0
        self.opset = 17  # of the model that is being read node by node
        self._used: set[tuple[int, int]] = set()
        self._pinned: list[PyTensor] = []
        self._pinned_names: list[str] = []
        self._drawn = 0

    # --- growing ----------------------------------------------------------------------------------------------------

    def value_of(self, tensor: Any, what: str) -> int:
        """The core's id of a tensor of this graph; raises UsageError for anything else."""
        if not isinstance(tensor, PyTensor):
            raise UsageError(f"{what} is {type(tensor).__name__}, expected a PyTensor of this graph.")
        if tensor._owner is not self:
            raise UsageError(f"{what} belongs to another graph; expected a PyTensor of this one.")
        return tensor._value

    def record(
        self,
        kind: str,
        attrs: Mapping[str, Any],
        inputs: Sequence[PyTensor | None],
        values: Sequence[int],
        name: str | None = None,
        loaded: bool = False,
    ) -> list[PyTensor]:
        """Notes an operator whose results are the core's ``values``."""
        guid = _FIRST_GUID + len(self.records)
        outputs = tuple(PyTensor(self, guid, index, value) for index, value in enumerate(values))
        self.records[guid] = Record(guid, kind, dict(attrs), tuple(inputs), outputs, name, loaded)
        self._used.update(tensor.tensor for tensor in inputs if tensor is not None)
        self.revision += 1
        return list(outputs)

    def add(self, op: str, attrs: Mapping[str, Any], inputs: Sequence[PyTensor], outputs: int = 1) -> list[PyTensor]:
        """One operator in the core's canonical form. Raises GraphError where types contradict each other."""
        values = [self.value_of(tensor, f"operand {index}") for index, tensor in enumerate(inputs)]
        first = self.builder.add(op, dict(attrs), values, outputs)
        return self.record(op, attrs, inputs, range(first, first + outputs))

    def input(self, dims: Sequence[Dim] | None, dtype: int, name: str | None) -> PyTensor:
        """A graph input; ``data``, ``data_1``, … where it is given no name. ``dims`` of None is an unknown rank."""
        taken = {one.name for one in self.records.values() if one.type == "Input"}
        if name in taken:
            raise UsageError(f"name={name!r} is the name of an earlier input; expected a new one.")
        number = 0
        while name is None:
            candidate = f"data_{number}" if number else "data"
            name, number = (candidate if candidate not in taken else None), number + 1
        shape = None if dims is None else list(dims)
        return self.record("Input", {}, [], [self.builder.input(name, dtype, shape)], name)[0]

    def weight(self, array: npt.NDArray[Any], name: str | None = None) -> PyTensor:
        """A constant with these elements (any dtype of ONNX)."""
        from rlflow.frontends.constants import CORE_DIGEST, facts, inline_values

        digest = self.constants.put(array)
        content, elements = self.constants.content(digest), self.constants[digest]
        values = inline_values(content.dtype, elements)
        known = None if values is not None else facts(content.dtype, elements)
        key = digest if values is None else CORE_DIGEST
        value = self.builder.constant(content.dtype, list(content.shape), key, values, known)
        return self.record("Weight", {"digest": digest}, [], [value], name)[0]

    def drawn(self, dims: Sequence[int]) -> npt.NDArray[np.float32]:
        """Seeded elements for a weight without data, so scaled that a signal keeps its size.

        Normal with variance 1 / fan-in (LeCun et al. 1998); vectors, which are scales, biases or variances, are uniform
        in [0.5, 1.5).
        """
        random = np.random.default_rng([self.seed, self._drawn])
        if prod(dims) > _MOST_ELEMENTS:
            raise UsageError(f"a weight of {list(dims)} has {prod(dims)} elements, which no memory holds.")
        self._drawn += 1
        if len(dims) < 2:
            return np.float32(0.5) + random.random(tuple(dims), dtype=np.float32)
        fan_in = prod(dims[1:]) if len(dims) == 4 else dims[-2]
        return random.standard_normal(tuple(dims), dtype=np.float32) / np.float32(sqrt(max(fan_in, 1)))

    # --- element types ----------------------------------------------------------------------------------------------

    def cast(self, tensor: PyTensor, dtype: int) -> PyTensor:
        """The tensor in another element type; itself where it has it."""
        self.value_of(tensor, "the operand")
        return tensor if tensor.dtype == dtype else self.add("Cast", {"to": dtype}, [tensor])[0]

    def as_float(self, tensor: PyTensor) -> PyTensor:
        """The tensor as float, which all of TASO's are: integers and truth values become one where one is needed."""
        self.value_of(tensor, "the operand")
        return tensor if tensor.dtype in FLOATS | {0} else self.cast(tensor, FLOAT)

    def alike(self, *tensors: PyTensor, integers: bool = True) -> list[PyTensor]:
        """Operands in one element type: the float one, int64 for several kinds of integers if admitted, else float."""
        for index, tensor in enumerate(tensors):
            self.value_of(tensor, f"operand {index}")
        types = {tensor.dtype for tensor in tensors}
        floats = types & FLOATS
        if floats:
            target = floats.pop() if len(floats) == 1 else onnx_datatype("DOUBLE" if 11 in floats else "FLOAT")
        elif BOOL in types or not integers:
            target = FLOAT
        else:
            target = types.pop() if len(types) == 1 else onnx_datatype("INT64")
        return [self.cast(tensor, target) for tensor in tensors]

    # --- outputs and the core's graph -------------------------------------------------------------------------------

    def pin(self, tensors: Sequence[PyTensor], names: Sequence[str] | None = None) -> None:
        """Makes tensors outputs in this order, whoever else reads them. Raises UsageError for a foreign tensor."""
        for index, tensor in enumerate(tensors):
            self.value_of(tensor, f"output {index}")
        self._pinned.extend(tensors)
        first = len(self._pinned_names)
        self._pinned_names.extend(names or [f"output_{first + index}" for index in range(len(tensors))])
        self.revision += 1

    def outputs(self) -> list[PyTensor]:
        """The pinned tensors, then, in the order of creation, the operators' results that nothing reads."""
        pinned = {tensor.tensor for tensor in self._pinned}
        loose = [
            tensor
            for record in self.records.values()
            if record.type not in ("Input", "Weight") and not record.loaded
            for tensor in record.outputs
            if tensor.tensor not in self._used and tensor.tensor not in pinned
        ]
        return self._pinned + loose

    def output_names(self) -> list[str]:
        """Names of the outputs: a loaded model's own, ``output_0``, ``output_1``, … for others."""
        names, taken = list(self._pinned_names), set(self._pinned_names)
        for index in range(len(names), len(self.outputs())):
            name = f"output_{index}"
            while name in taken:
                name += "_"
            names.append(name)
            taken.add(name)
        return names

    def core(self) -> Graph:
        """The immutable graph of everything that an output needs, with all inputs."""
        return self.builder.finish([tensor._value for tensor in self.outputs()])

    def splice(
        self,
        graph: Graph,
        constants: ConstantStore,
        given: Mapping[str, PyTensor] | None = None,
        *,
        loaded: bool = False,
    ) -> list[PyTensor]:
        """Copies a core graph in and returns its outputs; inputs in ``given`` are those tensors, others become inputs.

        ``loaded``: only what is pinned later is an output, whatever nothing reads.
        """
        return _Splice(self, graph, constants, given or {}, loaded).run()

    def settle(self) -> None:
        """From now on only pinned tensors, and what is added later, are outputs."""
        self.records = {guid: replace(record, loaded=True) for guid, record in self.records.items()}
        self.revision += 1


class _Splice:
    """One core graph being copied."""

    def __init__(
        self, store: Store, graph: Graph, constants: ConstantStore, given: Mapping[str, PyTensor], loaded: bool
    ) -> None:
        self.store, self.graph, self.constants, self.given, self.loaded = store, graph, constants, given, loaded
        self.tensors: dict[int, PyTensor] = {}

    def run(self) -> list[PyTensor]:
        """All nodes in order, then the outputs."""
        for node in [*self.graph.inputs(), *self.graph.order()]:
            values = self.graph.node_outputs(node)
            if values[0] not in self.tensors:
                self.tensors.update(zip(values, self._node(node, values), strict=True))
        return [self.tensors[value] for value in self.graph.outputs()]

    def _node(self, node: int, values: Sequence[int]) -> list[PyTensor]:
        graph, store, op = self.graph, self.store, self.graph.op(node)
        if op == "Input":
            name = graph.input_name(node)
            if name in self.given:
                return [self.given[name]]
            return [store.input(graph.shape(values[0]), graph.dtype(values[0]), name)]
        attrs = graph.attrs(node)
        if op == "Constant":
            return [self._constant(node, attrs["value"])]
        inputs = [self.tensors[value] if value >= 0 else None for value in graph.node_inputs(node)]
        operands = [-1 if tensor is None else tensor._value for tensor in inputs]
        if op == "Opaque":
            first = self._opaque(attrs, operands, values)
        else:
            first = store.builder.add(op, attrs, operands, len(values))
        kind = str(attrs.get("name", op)) if op == "Opaque" else op
        return store.record(kind, attrs, inputs, range(first, first + len(values)), loaded=self.loaded)

    def _constant(self, node: int, info: Mapping[str, Any]) -> PyTensor:
        digest = self.graph.const_digest(node)
        values = self.graph.const_values(node)
        array = self._elements(node)
        if array is not None and self.store.constants is not self.constants:
            return self.store.weight(array)
        value = self.store.builder.constant(info["dtype"], info["shape"], digest, values, info["facts"])
        return self.store.record("Weight", {"digest": digest}, [], [value])[0]

    def _elements(self, node: int) -> npt.NDArray[Any] | None:
        from rlflow.frontends.constants import constant_array

        return constant_array(self.graph, node, self.constants)

    def _opaque(self, attrs: Mapping[str, Any], operands: list[int], values: Sequence[int]) -> int:
        template = self.constants.template(attrs["payload"])
        if template is None:
            raise GraphError(f"The original of opaque node {attrs['name']!r} is not known; pass its model's constants.")
        self.store.constants.put_template(attrs["payload"], template)
        types = [(self.graph.dtype(value), self.graph.shape(value)) for value in values]
        pure = "instance" not in attrs  # the core numbers the nodes that it must not share
        return self.store.builder.opaque(attrs["name"], attrs["payload"], pure, operands, types)
