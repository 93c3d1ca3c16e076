"""The values of a model that is being read, by their names in the file: inputs, initialisers, and what nodes make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import onnx

from rlflow.errors import ModelError, brief
from rlflow.frontends import inference, symbolic
from rlflow.frontends.canonical import Declined
from rlflow.frontends.constants import CORE_DIGEST, Array, ConstantStore, facts, inline_values
from rlflow.frontends.dimensions import Symbols
from rlflow.frontends.forms import Operand
from rlflow.frontends.imported import NamedConstant, Origin
from rlflow.frontends.node_view import ABSENT
from rlflow.graph import Graph, GraphBuilder


class Values:
    """Value ids of the core by name, and the elements of constants."""

    def __init__(self, graph: onnx.GraphProto, origin: Origin) -> None:
        self.builder = GraphBuilder()
        self.constants = ConstantStore()
        self.origin = origin
        self._graph = graph
        self._ids: dict[str, int] = {}
        self._digests: dict[int, str] = {}

    # -- names

    def bind(self, name: str, value: int) -> None:
        """Gives a name to a value."""
        self._ids[name] = value
        self.origin.value_names.setdefault(value, name)

    def of(self, name: str) -> int:
        """The value of a name; :data:`ABSENT` for no name."""
        return self._ids[name] if name else ABSENT

    def output(self, name: str) -> int:
        """The value of a graph output. Raises ModelError where nothing makes it."""
        if name not in self._ids:
            graph = brief(self._graph.name)
            raise ModelError(f"While reading graph '{graph}': nothing makes the graph output '{brief(name)}'.")
        return self._ids[name]

    def operand(self, operand: Operand, values: list[int]) -> int:
        """The value of a canonical operand of a node whose own operands are ``values``."""
        if operand is None:
            return ABSENT
        if isinstance(operand, np.ndarray):
            return self._add_constant(self.constants.put(operand))
        if operand >= len(values):
            raise Declined("it lacks an operand")
        return values[operand]

    # -- inputs and constants

    def read_inputs(self, model: onnx.ModelProto, symbols: Symbols, keep: bool, notes: list[str]) -> None:
        """Makes the graph's inputs. Initialisers among them become constants, unless they are to be kept."""
        graph = self._graph
        initialised = {tensor.name for tensor in graph.initializer}
        both = [info for info in graph.input if info.name in initialised]
        if both and not keep:
            kept = [info for info in graph.input if info.name not in initialised]
            del graph.input[:]
            graph.input.extend(kept)
            model.ir_version = max(model.ir_version, 4)
            notes.append(
                f"{len(both)} initialisers were also graph inputs; "
                "they are constants now and can no longer be overridden."
            )
        self.origin.kept_inputs = frozenset(info.name for info in both) if keep else frozenset()
        places = {place: name for name, place in symbols.items() if place is not None}
        for info in graph.input:
            self._read_input(info, places)

    def _read_input(self, info: onnx.ValueInfoProto, places: dict[tuple[str, int], str]) -> None:
        if info.name in self._ids:
            graph = brief(self._graph.name)
            raise ModelError(f"While reading graph '{graph}': two inputs have the name '{brief(info.name)}'.")
        dtype, shape = inference.type_of(info)
        if shape is not None:
            named = [(dim, places.get((info.name, axis))) for axis, dim in enumerate(shape)]
            shape = [symbolic.quote(name) if dim is None and name else dim for dim, name in named]
        self.bind(info.name, self.builder.input(info.name, dtype, shape))

    def read_initializers(self, notes: list[str]) -> None:
        """Makes the file's initialisers; of two with one name the first one counts."""
        for tensor, count in _counted(self._graph.initializer):
            if count > 1:
                notes.append(f"Two initialisers have the name '{tensor.name}'; the first one is taken.")
            elif tensor.name not in self.origin.kept_inputs:
                self.constant(tensor.name, tensor, tensor)

    def constant(self, name: str, tensor: onnx.TensorProto, proto: onnx.TensorProto | onnx.NodeProto) -> None:
        """Makes a constant of the file; ``proto`` is the initialiser or Constant node that holds it."""
        digest = self.constants.put_proto(tensor, self.origin.base_dir)
        value = self._add_constant(digest)
        self.origin.constants.setdefault(name, NamedConstant(digest, proto))
        self.bind(name, value)

    def _add_constant(self, digest: str) -> int:
        content, array = self.constants.content(digest), self._elements(digest)
        values = None if array is None else inline_values(content.dtype, array)
        known = None if array is None or values is not None else facts(content.dtype, array)
        key = digest if values is None else CORE_DIGEST
        value = self.builder.constant(content.dtype, list(content.shape), key, values, known)
        self._digests.setdefault(value, digest)
        return value

    def array(self, value: int) -> Array | None:
        """The elements of a constant of the file, or of one that shape arithmetic made (its known integers)."""
        digest = self._digests.get(value)
        return None if digest is None else self._elements(digest)

    def _elements(self, digest: str) -> Array | None:
        """None for a weight of an outline."""
        return None if self.constants.outlined(digest) else self.constants[digest]

    def settle(self, graph: Graph) -> None:
        """Lets the core's digests of the finished graph's constants stand for the elements here."""
        for node in graph.order():
            value = graph.node_outputs(node)[0] if graph.node_outputs(node) else ABSENT
            if value in self._digests:
                self.constants.alias(str(graph.const_digest(node)), self._digests[value])


def _counted(tensors: Iterable[onnx.TensorProto]) -> list[tuple[onnx.TensorProto, int]]:
    """Tensors, and how many of the name there were with this one."""
    seen: Counter[str] = Counter()
    out = []
    for tensor in tensors:
        seen[tensor.name] += 1
        out.append((tensor, seen[tensor.name]))
    return out
