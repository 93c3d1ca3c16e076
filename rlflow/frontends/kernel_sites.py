"""Where in ONNX Runtime's optimised graph a kernel of ours could take a node's place: what is read of the graph, and
how it is edited. The kinds of such places are in :mod:`rlflow.frontends.kernel_kinds`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCKED, KERNELS, CONTRIB = "com.microsoft.nchwc", "rlflow.kernels", "com.microsoft"
#: Activations that the kernels do after a convolution.
ACTIVATIONS = frozenset({"", "Relu", "LeakyRelu", "Clip", "HardSigmoid"})


@dataclass(frozen=True)
class Site:
    """A node that a kernel can do: its kind, its name, and the sizes that the kernel's speed depends on. For a

    * convolution (by a kernel 3×3): channels out and in, as they are stored;
    * convolution-5x5, convolution-7 (1×7 or 7×1), convolution-3 (1×3 or 3×1): the same, the kernel's height and width;
    * convolution-other (another kernel or stride): the same, and the strides;
    * norm: values in a row, whether it is centred (0, 1), how many tensors are added first;
    * norm-of-blocks: the same, but between blocked tensors;
    * gelu: values of the bias, 0: there is none;
    * product: height and width of the constant matrix. The rows of the other operand are for the caller to know;
    * depthwise: channels, the kernel's height and width, the strides;
    * grouped: channels, those of a group, the kernel's height and width, the strides.

    ``others``: the names of further nodes that a kernel makes superfluous.
    """

    kind: str
    name: str
    sizes: tuple[int, ...]
    others: tuple[str, ...] = ()


class Forms:
    """Makes other forms of the constants that ``graph`` holds."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._constants = {one.name: one for one in graph.initializer}

    def other(self, name: str, changed: str, change: Callable[[np.ndarray], np.ndarray]) -> TensorProto:
        """The constant ``name`` as ``change`` makes it, under the name ``changed``."""
        return numpy_helper.from_array(np.ascontiguousarray(change(self.values(self._constants[name]))), changed)

    def values(self, constant: TensorProto) -> np.ndarray:
        """The elements of a constant."""
        return numpy_helper.to_array(constant)


class Surroundings:
    """What a node does not know by itself, and the changes that a kernel makes around it. ``block``: channels in a
    block, 0: there are no blocked tensors. ``threads``: those that kernels cut their work for.
    """

    def __init__(self, graph: onnx.GraphProto, block: int, threads: int = 1, forms: Forms | None = None) -> None:
        self._graph, self.block, self.threads, self._forms = graph, block, threads, forms or Forms(graph)
        given = {value.name for value in graph.input}
        self._constants = {one.name: one for one in graph.initializer if one.name not in given}
        self._producers = {name: node for node in graph.node for name in node.output if name}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
        self._uses = Counter(_names_read(graph))
        self._uses.update(value.name for value in graph.output)
        self._dropped: set[str] = set()
        self._replaced: set[str] = set()

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a constant of float32; ``None``: it is something else."""
        found = self._constants.get(name)
        return tuple(found.dims) if found is not None and found.data_type == TensorProto.FLOAT else None

    def is_used(self, name: str) -> bool:
        """Whether a node or the graph's output reads this value."""
        return bool(self._uses[name])

    def producer(self, name: str) -> onnx.NodeProto | None:
        return self._producers.get(name)

    def only_reader(self, name: str) -> onnx.NodeProto | None:
        """The one node that reads this value, where nothing else does."""
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and self._uses[name] == 1 else None

    def other_form(self, name: str, suffix: str, change: Callable[[np.ndarray], np.ndarray]) -> str:
        """The name of a constant in another form, which is made once; the first form goes where nothing reads it."""
        changed = f"{name}.{suffix}"
        if changed not in self._constants:
            self._graph.initializer.append(self._forms.other(name, changed, change))
            self._constants[changed] = self._graph.initializer[-1]
            self._replaced.add(name)
        return changed

    def drop(self, node: onnx.NodeProto) -> None:
        """The node is superfluous."""
        self._dropped.add(node.name)

    def finish(self) -> None:
        """Take what is superfluous out of the graph: nodes, and constants that nothing reads any more."""
        nodes, constants = self._graph.node, self._graph.initializer
        for place in reversed(range(len(nodes))):
            if nodes[place].name in self._dropped:
                del nodes[place]
        read = set(_names_read(self._graph)) | {value.name for value in self._graph.output}
        for place in reversed(range(len(constants))):
            if constants[place].name in self._replaced - read:
                del constants[place]


def _names_read(graph: onnx.GraphProto) -> Iterator[str]:
    """What the nodes read, also those in the bodies of If, Loop and Scan; a name comes as often as it is read."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _names_read(body)
                yield from (value.name for value in body.output)


@dataclass(frozen=True)
class KernelKind:
    """``read``: the site that a node is, else ``None``. ``write``: puts the kernel there, with the attributes of an
    algorithm.
    """

    name: str
    read: Callable[[onnx.NodeProto, Surroundings], Site | None]
    write: Callable[[onnx.NodeProto, Surroundings, Mapping[str, int]], None]


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's attributes by name; bytes are text."""
    values = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


def input_of(node: onnx.NodeProto, number: int) -> str:
    """The name of an input; empty where there is none."""
    return str(node.input[number]) if 0 <= number < len(node.input) else ""


def replace(
    node: onnx.NodeProto, operator: str, inputs: list[str], outputs: list[str], attributes: Mapping[str, Any]
) -> None:
    """Make ``node`` an operator of ours. Attributes that are ``None`` are left out, and missing inputs at the end."""
    while inputs and not inputs[-1]:
        inputs.pop()
    name = node.name
    node.Clear()
    node.name, node.op_type, node.domain = name, operator, KERNELS
    node.input.extend(inputs)
    node.output.extend(outputs)
    node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items() if value is not None)


def convolution_attributes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Those that say what follows a convolution, as the kernels take them."""
    return {name: given.get(name) for name in ("activation", "activation_params")}
