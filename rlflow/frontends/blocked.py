"""ONNX Runtime's optimised graph, in which convolutions work on blocked tensors (NCHWc): which of them another
algorithm could do, and the graph in which it does.

The runtime marks such a convolution by the domain ``com.microsoft.nchwc``; its weights are already in blocked order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import TensorProto, helper

from rlflow.errors import ModelError
from rlflow.files import write_atomically
from rlflow.frontends import storage
from rlflow.frontends.opening import parse_model, read_model

BLOCKED, KERNELS = "com.microsoft.nchwc", "rlflow.kernels"
#: Activations that the kernels do after a convolution.
ACTIVATIONS = frozenset({"", "Relu", "LeakyRelu", "Clip", "HardSigmoid"})
_SAME = ("SAME_UPPER", "SAME_LOWER")
_PROBE_IN, _PROBE_OUT = 16, 24  # channels that blocks of 8 and of 16 pad differently


@dataclass(frozen=True)
class Convolution:
    """A blocked 3×3 convolution of stride 1: its node's name, (output, input) channels as stored, and padding."""

    name: str
    channels: tuple[int, int]
    pads: tuple[int, int, int, int]


def set_metadata(model: onnx.ModelProto, key: str, value: str | None) -> None:
    """Give a metadata entry its value; ``None`` removes it."""
    kept = [entry for entry in model.metadata_props if entry.key != key]
    others = [(entry.key, entry.value) for entry in kept]
    del model.metadata_props[:]
    for name, text in [*others, *([] if value is None else [(key, value)])]:
        model.metadata_props.add(key=name, value=text)


def whole(source: bytes | str) -> bytes:
    """The model with the weights of its other files inside, since ONNX Runtime would leave them outside of the graph
    that it writes. Raises ModelError, also where it is too large for one piece.
    """
    if isinstance(source, bytes):
        return source
    model = read_model(source)
    if storage.weight_bytes(model) >= storage.LARGEST_FILE:
        raise ModelError(f"The model {source} is too large to be optimised in one piece.")
    return storage.embed(model, os.path.dirname(os.path.abspath(source))).SerializeToString()


def probe() -> bytes:
    """A small model whose blocked form tells how many channels are in a block here."""
    weights = helper.make_tensor(
        "w", TensorProto.FLOAT, [_PROBE_OUT, _PROBE_IN, 1, 1], [0.0] * (_PROBE_OUT * _PROBE_IN)
    )
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "probe",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, _PROBE_IN, 2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, _PROBE_OUT, 2, 2])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return model.SerializeToString()


def block_of(optimised_probe: bytes) -> int | None:
    """Channels in a block, read off what the runtime made of :func:`probe`; ``None``: it uses no blocks."""
    graph = parse_model(optimised_probe, "the probe").graph
    shapes = {tensor.name: tensor.dims for tensor in graph.initializer}
    for node in graph.node:
        if node.domain == BLOCKED and node.op_type == "Conv" and node.input[1] in shapes:
            return {24: 8, 32: 16}.get(shapes[node.input[1]][0])
    return None


class BlockedGraph:
    """The runtime's optimised graph of a model. ``block``: channels in a block."""

    def __init__(self, optimised: bytes, block: int) -> None:
        self._model, self.block = parse_model(optimised, "the optimised graph"), block

    def convolutions(self) -> list[Convolution]:
        """Those that the kernels can do, in the graph's order."""
        return [found for _, found in self._found()]

    def _found(self) -> Iterator[tuple[onnx.NodeProto, Convolution]]:
        graph = self._model.graph
        given = {value.name for value in graph.input}
        shapes = {one.name: tuple(one.dims) for one in graph.initializer if one.data_type == TensorProto.FLOAT}
        seen: set[str] = set()
        for node in graph.node:
            if node.domain != BLOCKED or node.op_type != "Conv" or node.name in seen:
                continue
            weights = "" if node.input[1] in given else node.input[1]
            found = _convolution(node, shapes.get(weights, ()), self.block)
            if found is not None:
                seen.add(node.name)
                yield node, found

    def with_kernels(self, attributes: Mapping[str, Mapping[str, int]]) -> bytes:
        """The graph with the convolutions of these names done by the kernels, each with its attributes; where there are
        none, as the runtime wrote it.

        Raises ModelError where a name is none of :meth:`convolutions`.
        """
        made = onnx.ModelProto()
        made.CopyFrom(self._model)
        wanted = dict(attributes)
        originals = {found.name: (node, found) for node, found in self._found()}
        for node in made.graph.node:
            if node.domain == BLOCKED and node.op_type == "Conv" and node.name in wanted and node.name in originals:
                _replace(node, originals[node.name][1], self.block, wanted.pop(node.name))
        if wanted:
            raise ModelError(f"The optimised graph has no convolution {next(iter(wanted))!r} that the kernels can do.")
        if attributes:
            made.opset_import.append(helper.make_opsetid(KERNELS, 1))
        return made.SerializeToString()


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    values = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


def _convolution(node: onnx.NodeProto, shape: tuple[int, ...], block: int) -> Convolution | None:
    """The node as the kernels see it, ``None`` where they cannot do it."""
    given = _attributes(node)
    plain = len(shape) == 4 and shape[2:] == (3, 3) and not shape[0] % block and not shape[1] % block
    plain = plain and given.get("group", 1) == 1 and list(given.get("kernel_shape", (3, 3))) == [3, 3]
    plain = plain and all(list(given.get(name, (1, 1))) == [1, 1] for name in ("strides", "dilations"))
    if not plain or not node.name or given.get("activation", "") not in ACTIVATIONS:
        return None
    how = given.get("auto_pad", "NOTSET")
    pads = [1] * 4 if how in _SAME else [0] * 4 if how == "VALID" else list(given.get("pads", [0] * 4))
    if len(pads) != 4 or min(pads) < 0:
        return None
    return Convolution(node.name, (shape[0], shape[1]), (pads[0], pads[1], pads[2], pads[3]))


def _replace(node: onnx.NodeProto, found: Convolution, block: int, extra: Mapping[str, int]) -> None:
    kept = [one for one in node.attribute if one.name in ("activation", "activation_params")]
    own = {"block": block, "pads": list(found.pads), **extra}
    attributes = [*kept, *(helper.make_attribute(name, value) for name, value in own.items())]
    node.domain, node.op_type = KERNELS, "NchwcWinograd"
    del node.attribute[:]
    node.attribute.extend(attributes)


def write_metadata(path: str, key: str, value: str | None) -> None:
    """Give a model file's metadata entry its value (``None``: remove it); weights in other files stay there.

    Raises ModelError and OutputError; then the file is as it was.
    """
    model = read_model(path)
    set_metadata(model, key, value)
    write_atomically(path, model.SerializeToString(deterministic=True))
