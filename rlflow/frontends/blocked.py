"""ONNX Runtime's optimised graph: which of its nodes a kernel of ours could do, and the graph in which it does.

Convolutions work there on blocked tensors (NCHWc), where the processor has them: the runtime marks them by the domain
``com.microsoft.nchwc``, and their weights are already in blocked order.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper

from rlflow.errors import ModelError
from rlflow.frontends import storage
from rlflow.frontends.generated_sites import FUNCTION, code_sites, put_code
from rlflow.frontends.kernel_kinds import KINDS, found_sites
from rlflow.frontends.kernel_sites import BLOCKED, KERNELS, Forms, Site, Surroundings
from rlflow.frontends.opening import parse_model, read_model

_PROBE_IN, _PROBE_OUT = 16, 24  # channels that blocks of 8 and of 16 pad differently


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


def apart(source: bytes | str, folder: str) -> tuple[str, storage.SharedWeights]:
    """The model as a file in ``folder`` beside its weights: the path, and the weights. Raises ModelError and
    OutputError.
    """
    if isinstance(source, bytes):
        model, weights = parse_model(source, "the model"), storage.SharedWeights(folder)
    else:
        model = read_model(source)
        weights = storage.SharedWeights(folder, os.path.dirname(os.path.abspath(source)))
    return weights.write(weights.slim(model), "original.onnx"), weights


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
    """The runtime's optimised graph of a model. ``block``: channels in a block; 0: it has no blocked tensors.
    ``threads``: how many its sessions have, for kernels to cut their work for.
    """

    def __init__(self, optimised: bytes, block: int, threads: int = 1) -> None:
        self._model, self.block = _named(parse_model(optimised, "the optimised graph")), block
        self._threads = threads

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return storage.weight_bytes(self._model)

    def may_grow(self, more: int) -> bool:
        """Whether the graph with so many bytes more is not too large for one piece."""
        return self.weight_bytes + more < storage.LARGEST_FILE

    def sites(self) -> list[Site]:
        """The nodes that a kernel can do, in the graph's order."""
        around = Surroundings(self._model.graph, self.block)
        return [site for _, site in found_sites(self._model.graph, around)]

    def code_sites(self) -> list[Site]:
        """The nodes that generated code can do, in the graph's order; some are among :meth:`sites`, too."""
        around = Surroundings(self._model.graph, self.block)
        return [site for _, site in code_sites(self._model.graph, around)]

    def with_kernels(self, attributes: Mapping[str, Mapping[str, int]]) -> bytes:
        """The graph with the sites of these names done by the kernels, each with its attributes; where there are none,
        as the runtime wrote it. Where the attribute is the number of a function, generated code does it.

        Raises ModelError where a name is no such site, and where the weights become too large for one piece.
        """
        made = onnx.ModelProto()
        made.CopyFrom(self._model)
        _put_kernels(made, attributes, Surroundings(made.graph, self.block, self._threads))
        return made.SerializeToString()


class MappedGraph:
    """As :class:`BlockedGraph`, but as files: each is some kilobytes beside ``weights`` that all of them refer to. The
    runtime maps those, as it does a prepared file's, and each weight is brought into another form once. ``optimised``:
    the path of the runtime's graph of a model that refers to ``weights``; the file is not needed afterwards.
    """

    def __init__(self, optimised: str, block: int, weights: storage.SharedWeights, threads: int = 1) -> None:
        self._model, self.block, self._weights = weights.joined(_named(read_model(optimised))), block, weights
        self._threads = threads
        self._forms, self._numbers = _FormsInFile(self._model.graph, weights), itertools.count(1)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights as the runtime has them."""
        return storage.weight_bytes(self._model)

    def sites(self) -> list[Site]:
        """The nodes that a kernel can do, in the graph's order."""
        return [site for _, site in found_sites(self._model.graph, Surroundings(self._model.graph, self.block))]

    def with_kernels(self, attributes: Mapping[str, Mapping[str, int]]) -> str:
        """The path of the graph with kernels. Raises OutputError where there is no room, and what the other raises."""
        made = onnx.ModelProto()
        made.CopyFrom(self._model)
        _put_kernels(made, attributes, Surroundings(made.graph, self.block, self._threads, self._forms))
        return self._weights.write(made, f"kernels-{next(self._numbers)}.onnx")


class _FormsInFile(Forms):
    """Reads and keeps constants in the file of ``weights``."""

    def __init__(self, graph: onnx.GraphProto, weights: storage.SharedWeights) -> None:
        super().__init__(graph)
        self._weights, self._made = weights, dict[str, TensorProto]()

    def other(self, name: str, changed: str, change: Callable[[np.ndarray], np.ndarray]) -> TensorProto:
        if changed not in self._made:
            self._made[changed] = self._weights.moved(super().other(name, changed, change), f"other:{changed}")
        return self._made[changed]

    def values(self, constant: TensorProto) -> np.ndarray:
        return self._weights.array(constant)


def _named(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model``, in which every node has a name: the runtime's fusions name theirs, exporters need not."""
    for node in model.graph.node:
        if not node.name:
            node.name = f"{node.op_type} to {next(filter(None, node.output), '')}"
    return model


def _put_kernels(made: onnx.ModelProto, attributes: Mapping[str, Mapping[str, int]], around: Surroundings) -> None:
    """Let kernels do the sites of these names, in place."""
    put_code(made.graph, {name: one[FUNCTION] for name, one in attributes.items() if FUNCTION in one}, around)
    wanted = {name: one for name, one in attributes.items() if FUNCTION not in one}
    chosen = [(node, site) for node, site in found_sites(made.graph, around) if site.name in wanted]
    for node, site in chosen:
        KINDS[site.kind].write(node, around, wanted.pop(site.name))
    if wanted:
        raise ModelError(f"The optimised graph has no node {next(iter(wanted))!r} that the kernels can do.")
    if attributes:
        around.finish()
        made.opset_import.append(helper.make_opsetid(KERNELS, 1))
    if storage.weight_bytes(made) >= storage.LARGEST_FILE:
        raise ModelError("The weights as the kernels take them are too large for one piece.")


def write_apart(model: bytes, path: str, metadata: Mapping[str, str] | None = None) -> None:
    """Write a model with its weights in a file beside it, and with these entries of metadata. Raises OutputError; both
    files are there, or neither.
    """
    parsed = parse_model(model, "the graph with kernels")
    for key, value in (metadata or {}).items():
        set_metadata(parsed, key, value)
    storage.write_apart(parsed, path)


def with_metadata(model: bytes, key: str, value: str | None) -> bytes:
    """The serialised model with this value of a metadata entry, or without the entry (``None``). Raises ModelError
    where it is no model.
    """
    parsed = parse_model(model, "the model")
    set_metadata(parsed, key, value)
    raw: bytes = parsed.SerializeToString(deterministic=True)
    return raw
