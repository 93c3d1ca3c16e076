"""Constants of a model that is being written: those of the file as they were, folded ones once each."""

from __future__ import annotations

from collections.abc import Callable, Collection

import onnx

from rlflow.errors import GraphError
from rlflow.frontends import storage
from rlflow.frontends.constants import array_to_proto, constant_array
from rlflow.frontends.emitter import Emitter
from rlflow.frontends.folding import Folder
from rlflow.frontends.imported import ImportedModel, NamedConstant


class ConstantWriter:
    """Writes constants through an emitter. ``weights``: a file that takes large ones; ``outputs``: names of the
    graph's outputs, each of which needs a value of its own; ``identity`` writes one of another.
    """

    def __init__(
        self,
        imported: ImportedModel,
        emitter: Emitter,
        weights: storage.SharedWeights | None,
        outputs: Collection[str],
        identity: Callable[[str, str], None],
    ) -> None:
        self._origin = imported.origin
        self._constants = imported.constants
        self._emitter = emitter
        self._graph = emitter.graph
        self.folder = Folder(emitter.graph, imported.constants)
        self._weights = weights
        self._identity = identity
        self._outputs = outputs
        self._written: set[str] = set()
        self._by_digest: dict[str, str] = {}
        # Of two with one name the first counts, as where the model is read.
        self._originals = {tensor.name: tensor for tensor in reversed(imported.origin.model.graph.initializer)}

    def name(self, name: str) -> str:
        """Makes sure that a constant of the file is written, and returns the name under which it is."""
        constant = self._origin.constants[name]
        if constant.digest in self._by_digest:
            return self._by_digest[constant.digest]
        self._by_digest[constant.digest] = name
        self._write(name, constant)
        return name

    def _write(self, name: str, constant: NamedConstant) -> None:
        if name in self._written:
            return
        self._written.add(name)
        if isinstance(constant.proto, onnx.NodeProto):
            proto = onnx.NodeProto()
            proto.CopyFrom(constant.proto)
            proto.output[0] = name
            self._emitter.nodes.append(proto)
        else:
            self.copy_initializer(constant.proto.name, name)

    def copy_initializer(self, original: str, name: str | None = None) -> None:
        """Writes an initialiser of the file, under another name where one is given."""
        tensor = self._originals[original]
        if name is not None and name != original:
            renamed = onnx.TensorProto()
            renamed.CopyFrom(tensor)
            renamed.name = name
            tensor = renamed
        self._written.add(tensor.name)
        self._add_tensor(tensor, f"original:{original}")

    def _add_tensor(self, tensor: onnx.TensorProto, key: str) -> None:
        slim = tensor if self._weights is None else self._weights.moved(tensor, key)
        self._emitter.initializers.append(slim)  # the model's list copies it

    def emit(self, node: int, original: str | None) -> None:
        """Writes a Constant node; ``original`` is the name that its value had in the file."""
        value = self._graph.node_outputs(node)[0]
        name = self._emitter.name(value)
        constant = self._origin.constants.get(original or "")
        if constant is not None:
            known = self._by_digest.get(constant.digest)
            if known is not None and known != name:
                self._share(value, known, name)
                return
            self._by_digest[constant.digest] = name
            self._write(name, constant)
            return
        array = constant_array(self._graph, node, self._constants)
        if array is None:
            raise GraphError(
                f"While writing constant '{name}': nobody has its elements (digest {self._graph.const_digest(node)})."
            )
        digest = self._graph.const_digest(node)
        self._add_tensor(array_to_proto(array, name, self._graph.dtype(value)), f"constant:{digest}")

    def emit_folded(self, value: int) -> None:
        """Writes a value that was computed now."""
        name = self._emitter.name(value)
        array = self.folder.folded(value)
        digest = self._constants.put(array)
        known = self._by_digest.setdefault(digest, name)
        if known == name:
            self._add_tensor(
                array_to_proto(array, name, self._graph.dtype(value)), f"folded:{self._graph.dtype(value)}:{digest}"
            )
        else:
            self._share(value, known, name)

    def _share(self, value: int, known: str, name: str) -> None:
        """Lets a constant be one that is written already; a graph output still needs a value of its own name."""
        if name in self._outputs:
            self._identity(known, name)
        else:
            self._emitter.value_names[value] = known
