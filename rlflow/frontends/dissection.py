"""A model taken apart: the nodes that work, in order, what passes between them, and models made of some of them.

Here a node is one of the file, not of a core graph: what comes out are the model's own nodes, names and weights. Nodes
that compute constants are no work; every piece that needs one has its own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import helper

from rlflow.errors import ModelError
from rlflow.frontends import dimensions, inference, intake, opening, scopes, stats, storage, symbolic
from rlflow.frontends.emitter import UniqueNames
from rlflow.frontends.inference import UNKNOWN, ValueType
from rlflow.frontends.lean import ir
from rlflow.frontends.symbolic import Dim

Shape = tuple[int | str | None, ...]

#: Element types that can be handed from one process to another as numpy arrays (bfloat16 travels as float32).
_CARRIED = frozenset(
    {"bool", "float16", "bfloat16", "float32", "float64", *(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64))}
)


@dataclass(frozen=True)
class Tensor:
    """A value by name: its element type as numpy calls it (``None`` where it is not known, or is no tensor) and its
    shape (symbols by name, ``None`` where nothing is known).
    """

    name: str
    dtype: str | None
    shape: Shape | None

    @property
    def carried(self) -> bool:
        """Whether another process can be handed this value."""
        return self.dtype in _CARRIED and self.shape is not None


@dataclass(frozen=True)
class Piece:
    """A model of some of the nodes, with the names of what it reads from outside and what others read of it."""

    model: onnx.ModelProto
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Dissection:
    """A model (a path, bytes or a ModelProto) as a list of working nodes in topological order, without those that no
    output needs.

    ``reads`` and ``makes``: by node, the names of the values that it reads (inputs of the model and what other working
    nodes make) and makes; ``places``: its index in the file; ``weights``: the names of the constants that it reads,
    ``weight_bytes`` their sizes.
    ``inputs``, ``outputs``: names of the model's own. Raises ModelError for what is no usable model.
    """

    def __init__(self, source: opening.Source) -> None:
        self.model, path, _ = opening.open_source(source)
        self.base_dir = "" if path is None else os.path.dirname(os.path.abspath(path))
        place = opening.place_of(path)
        self.external = intake.admit(self.model, self.base_dir, place)
        self.notes: list[str] = []
        opening.require_graph(self.model, place)
        opening.assume_opset(self.model, self.notes)
        graph = self.model.graph
        if graph.sparse_initializer or self.model.training_info:
            raise ModelError(f"While taking {place} apart: models with sparse weights or a training step stay whole.")
        self._initialisers = {tensor.name: tensor for tensor in graph.initializer}
        self._infos = {info.name: info for info in (*graph.value_info, *graph.input, *graph.output)}
        self.inputs = [info.name for info in graph.input if info.name not in self._initialisers]
        self.outputs = [info.name for info in graph.output]
        if len(self.inputs) < len(graph.input):
            self.notes.append("Weights that are also listed as inputs became plain weights.")
        self._sort_out()
        self._learnt: dict[str, ValueType] = {}
        self.types = self._inferred({})

    def _sort_out(self) -> None:
        """Splits the nodes into constants and work, and drops what no output needs."""
        in_file = list(self.model.graph.node)  # kept, so that every node stays one object
        place = {id(node): number for number, node in enumerate(in_file)}
        nodes = scopes.sort_nodes(self.model.graph)
        pure = scopes.Purity(scopes.function_table(self.model))
        reads = {id(node): _reads(node) for node in nodes}
        leaves: dict[str, frozenset[str]] = {name: frozenset([name]) for name in self._initialisers}
        self.weight_bytes = {name: nbytes(one.data_type, one.dims) for name, one in self._initialisers.items()}
        self._constant_maker: dict[str, onnx.NodeProto] = {}
        for node in nodes:
            if all(name in leaves for name in reads[id(node)]) and pure(node):
                below = frozenset[str]().union(*(leaves[name] for name in reads[id(node)]))
                if not below:
                    below = frozenset([next(filter(None, node.output))])
                    self.weight_bytes[next(iter(below))] = _own_bytes(node)
                leaves.update(dict.fromkeys(filter(None, node.output), below))
                self._constant_maker.update(dict.fromkeys(filter(None, node.output), node))
        needed = set(self.outputs)
        working = []
        for node in reversed(nodes):
            if needed.intersection(node.output) and not any(name in leaves for name in node.output if name):
                working.append(node)
                needed.update(reads[id(node)])
        self.nodes: list[onnx.NodeProto] = working[::-1]
        self.places = [place[id(node)] for node in self.nodes]
        all_reads = [reads[id(node)] for node in self.nodes]
        self.reads = [[name for name in names if name not in leaves] for names in all_reads]
        self.weights = [
            sorted(frozenset[str]().union(*(leaves[name] for name in names if name in leaves))) for names in all_reads
        ]
        self.makes = [[name for name in node.output if name] for node in self.nodes]
        self._maker = {name: index for index, names in enumerate(self.makes) for name in names}
        self._constants = frozenset(leaves)

    def maker(self, name: str) -> int | None:
        """The working node that makes a value, or ``None`` for an input of the model."""
        return self._maker.get(name)

    def tensor(self, name: str) -> Tensor:
        """Type and shape of a value, as far as they are known."""
        dtype, dims = self.types.get(name, UNKNOWN)
        return Tensor(name, dtype_name(dtype), None if dims is None else tuple(map(_plain, dims)))

    def untyped(self) -> list[str]:
        """Values of which ONNX's inference does not know type or rank, as behind an operator of another domain."""
        unknown = (name for names in self.makes for name in names if self.tensor(name).shape is None)
        return list(unknown)

    def learn(self, tensors: Iterable[Tensor]) -> None:
        """Take types and shapes from elsewhere, where inference knows none."""
        for one in tensors:
            if one.dtype is not None and one.shape is not None:
                dims: list[Dim] = [symbolic.quote(dim) if isinstance(dim, str) else dim for dim in one.shape]
                self._learnt[one.name] = onnx_number(one.dtype), dims
        self.types = self._inferred({})

    def value_bytes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Bytes of every value that is not constant, where open dimensions have these ``sizes`` (1 where it is not
        known; 0 where nothing about the value is).
        """
        types = self._inferred(sizes)
        names = [*self.inputs, *(name for names in self.makes for name in names)]
        return {name: _bytes_at(types.get(name, UNKNOWN)) for name in names}

    def operations(self, sizes: Mapping[str, int]) -> list[int]:
        """Multiply-accumulates of each working node (of convolutions and matrix products; 0 for others)."""
        types = self._inferred(sizes)
        shapes = {
            name: tuple(dim for dim in dims if isinstance(dim, int))
            for name, (_, dims) in types.items()
            if dims is not None and all(isinstance(dim, int) for dim in dims)
        }
        shapes.update({name: tuple(one.dims) for name, one in self._initialisers.items()})
        return [_macs(node, shapes) for node in self.nodes]

    def _inferred(self, sizes: Mapping[str, int]) -> dict[str, ValueType]:
        bare = inference.bare_model(self.model)
        symbols = dimensions.name_dims(bare)
        dimensions.freeze(bare, symbols, {name: size for name, size in sizes.items() if name in symbols})
        found = inference.infer(bare, frozenset(name for name, place in symbols.items() if place is None))[0]
        for name, (dtype, dims) in self._learnt.items():
            if found.get(name, UNKNOWN)[1] is None:
                known = [sizes.get(symbolic.unquote(dim), dim) if isinstance(dim, str) else dim for dim in dims or []]
                found[name] = dtype, known
        return found

    def piece(self, chosen: Collection[int], name: str, *, last: bool = False, pooled: bool = False) -> Piece:
        """The model of the working nodes ``chosen`` (indices); the ``last`` one also has constant outputs. ``pooled``:
        images that other nodes hand it go through a pool of one pixel first, see :meth:`_pool`.
        """
        inside = set(chosen)
        made = {one for index in inside for one in self.makes[index]}
        wanted = {one for index, names in enumerate(self.reads) if index not in inside for one in names}
        wanted.update(self.outputs)
        constant = [one for one in self.outputs if last and one in self._constants]
        nodes = [self.nodes[index] for index in sorted(inside)]
        read = list(dict.fromkeys(one for node in nodes for one in _reads(node)))
        given = {one for one in read if one not in made and one not in self._constants}
        inputs = [one for one in self.inputs if one in given]
        inputs += sorted(given.difference(inputs), key=lambda one: self._maker[one])
        outputs = [one for index in sorted(inside) for one in self.makes[index] if one in wanted]
        outputs += [one for one in dict.fromkeys(constant) if one not in outputs]
        makers, weights = self._constant_closure([*read, *constant])
        model = self._shell([*makers, *nodes])
        graph = model.graph
        graph.name = name
        graph.node.extend([*makers, *nodes])
        graph.initializer.extend(weights)
        graph.input.extend(self._info(one) for one in inputs)
        graph.output.extend(self._info(one) for one in outputs)
        known = made.difference(outputs)
        graph.value_info.extend(info for info in self.model.graph.value_info if info.name in known)
        present = made | given | {tensor.name for tensor in weights}
        graph.quantization_annotation.extend(
            one for one in self.model.graph.quantization_annotation if one.tensor_name in present
        )
        if pooled:
            self._pool(graph, [one for one in inputs if one not in self.inputs and self._may_be_blocked(one)])
        return Piece(model, tuple(inputs), tuple(outputs))

    def _may_be_blocked(self, name: str) -> bool:
        """Whether ONNX Runtime may keep a value in its blocked layout: its channels fill blocks of 8."""
        tensor = self.tensor(name)
        if tensor.dtype != "float32" or tensor.shape is None or len(tensor.shape) != 4:
            return False
        channels = tensor.shape[1]
        return isinstance(channels, int) and channels % 8 == 0

    def _pool(self, graph: onnx.GraphProto, names: Sequence[str]) -> None:
        """Puts an average pool of one pixel behind each of these inputs, in place.

        It changes no number (only the sign of a zero). But it is an operator for which the runtime puts its input into
        the blocked layout, so what follows is computed by the same kernels as in the whole, where the value came from
        an operator of that layout. A normalisation, for one, is a convolution there.
        """
        taken = {tensor.name for tensor in graph.initializer}.union(names)
        scopes.walk(graph, lambda node: taken.update((*node.input, *node.output)))
        fresh, read = UniqueNames(taken), {one for node in graph.node for one in node.input}
        views = {name: fresh.fresh("handed") for name in names if name in read}
        for node in graph.node:
            for place, name in enumerate(node.input):
                node.input[place] = views.get(name, name)
        nodes = list(graph.node)
        del graph.node[:]
        graph.node.extend(
            helper.make_node("AveragePool", [name], [view], view, kernel_shape=[1, 1]) for name, view in views.items()
        )
        graph.node.extend(nodes)

    def _constant_closure(self, names: Iterable[str]) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        """The nodes (in order) and initialisers that the constants among ``names`` are made of."""
        waiting = [name for name in names if name in self._constants]
        seen: set[str] = set()
        makers: dict[int, onnx.NodeProto] = {}
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self._constant_maker:
                node = self._constant_maker[name]
                makers[id(node)] = node
                waiting.extend(_reads(node))
        order = {id(node): place for place, node in enumerate(self._constant_maker.values())}
        return (
            [makers[key] for key in sorted(makers, key=lambda key: order[key])],
            [tensor for name, tensor in self._initialisers.items() if name in seen],
        )

    def _shell(self, nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
        """A model with everything but a graph, and only the functions that ``nodes`` call."""
        model = onnx.ModelProto()
        storage.copy_fields(self.model, model, skip=("graph", "functions"))
        model.ir_version = max(model.ir_version, 4)  # before that, weights are inputs, too
        table = scopes.function_table(self.model)
        waiting = [scopes.key_of(node) for node in scopes.all_nodes(nodes)]
        called: set[scopes.FunctionKey] = set()
        while waiting:
            key = waiting.pop()
            if key in table and key not in called:
                called.add(key)
                waiting.extend(scopes.key_of(node) for node in scopes.all_nodes(table[key].node))
        model.functions.extend(function for key, function in table.items() if key in called)
        return model

    def _info(self, name: str) -> onnx.ValueInfoProto:
        """A value as an input or output: as the file declares it, else by inference."""
        given = self._infos.get(name)
        if given is not None and given.type.WhichOneof("value") is not None:
            return given
        dtype, dims = self.types.get(name, UNKNOWN)
        if dtype == 0:
            return onnx.ValueInfoProto(name=name)
        return helper.make_tensor_value_info(name, dtype, None if dims is None else list(map(_plain, dims)))

    def write(self, piece: Piece, path: str | os.PathLike[str]) -> onnx.ModelProto:
        """Writes a piece, with its weights in a file beside it where the model's own are or they are too many."""
        return storage.write(piece.model, path, self.base_dir, self.external)


def named_apart(model: onnx.ModelProto) -> list[str]:
    """Gives the nodes of the main graph names of their own, in place; those names, in the order of the nodes."""
    for number, node in enumerate(model.graph.node):
        node.name = f"rlflow.node.{number}"
    return [node.name for node in model.graph.node]


def showing(model: onnx.ModelProto, values: Iterable[str]) -> onnx.ModelProto:
    """``model``, changed in place, with outputs for ``values``, too, of which a runtime finds out the types."""
    there = {info.name for info in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in values if name not in there)
    return model


def onnx_number(dtype: str) -> int:
    """The ONNX element type number of a name that :func:`dtype_name` gives."""
    if dtype == "string":
        return int(onnx.TensorProto.STRING)
    return int(ir.DataType.BFLOAT16 if dtype == "bfloat16" else ir.DataType.from_numpy(np.dtype(dtype)))


def dtype_name(dtype: int) -> str | None:
    """numpy's name of an ONNX element type number, ``None`` for 0; ``string`` for texts."""
    if dtype == onnx.TensorProto.STRING:
        return "string"
    try:
        return ir.DataType(dtype).numpy().name if dtype else None
    except (ValueError, TypeError):
        return None


def nbytes(dtype: int, dims: Iterable[int]) -> int:
    """Bytes of a dense tensor of an ONNX element type; texts count as none."""
    try:
        return int(prod(dims) * ir.DataType(dtype).itemsize) if dtype != onnx.TensorProto.STRING else 0
    except (ValueError, TypeError):
        return 0


def _bytes_at(found: ValueType) -> int:
    dtype, dims = found
    return 0 if dims is None else nbytes(dtype, (dim if isinstance(dim, int) else 1 for dim in dims))


def _own_bytes(node: onnx.NodeProto) -> int:
    return sum(nbytes(one.t.data_type, one.t.dims) for one in node.attribute if one.HasField("t"))


def _plain(dim: Dim) -> Any:
    return symbolic.unquote(dim) if isinstance(dim, str) else dim


def _macs(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> int:
    try:
        return stats.count_macs(node, shapes)
    except (ModelError, IndexError):  # an unknown shape, or one that the file declares wrongly
        return 0


def _reads(node: onnx.NodeProto) -> list[str]:
    return [name for name in dict.fromkeys(_operands(node)) if name]


def _operands(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    yield from scopes.captures(node)
