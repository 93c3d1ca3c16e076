"""ONNX models for the runtimes that read graphs, not files: the GPU's back end and torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.errors import RlflowError, RuntimeRefused
from rlflow.runtime.interface import interface_names
from rlflow.runtime.messages import ModelIO, TensorInfo

if TYPE_CHECKING:
    from rlflow.graph import Graph

_NAMES = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16", 9: "bool", 2: "uint8", 3: "int8", 4: "uint16",
          5: "int16", 6: "int32", 7: "int64", 12: "uint32", 13: "uint64"}  # fmt: skip


class LoadedModel:
    """A model's graph, its constants and its interface; raises :class:`RuntimeRefused` for what has no graph."""

    def __init__(self, source: bytes | str, runtime: str) -> None:
        from rlflow.frontends import load_model

        self.runtime = runtime
        try:
            imported = load_model(source)
        except RlflowError as error:
            raise RuntimeRefused(f"{runtime} refused to load the model: {error}") from error
        if imported.passthrough is not None:
            raise RuntimeRefused(f"{runtime} refused to load the model: {imported.passthrough}")
        self.graph, self.constants = imported.graph, imported.constants
        self.output_names = interface_names(source)[1]
        self.io = ModelIO(
            tuple(
                self._info(self.graph.input_name(node), self.graph.node_outputs(node)[0])
                for node in self.graph.inputs()
            ),
            tuple(self._info(name, v) for name, v in zip(self.output_names, self.graph.outputs(), strict=True)),
        )

    def _info(self, name: str, value: int) -> TensorInfo:
        shape = self.graph.shape(value)
        dtype = _NAMES.get(self.graph.dtype(value))
        if shape is None or dtype is None:
            raise RuntimeRefused(
                f"{self.runtime} cannot run the model: {name!r} has the type {self.graph.type_text(value)}, "
                "expected a tensor of known rank."
            )
        return TensorInfo(name, dtype, tuple(dim if isinstance(dim, (int, str)) else None for dim in shape))

    def feeds(self, feeds: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The inputs that the model takes, contiguous and in their own types."""
        found = {}
        for info in self.io.inputs:
            if info.name not in feeds:
                raise RuntimeRefused(f"{self.runtime} failed to run the model: the input {info.name!r} was not given.")
            wanted = numpy_type(self.graph.dtype(self._input_value(info.name)))
            found[info.name] = np.asarray(feeds[info.name], order="C").astype(wanted, copy=False)
        return found

    def _input_value(self, name: str) -> int:
        node = next(node for node in self.graph.inputs() if self.graph.input_name(node) == name)
        return self.graph.node_outputs(node)[0]

    def bound(self, feeds: Mapping[str, np.ndarray]) -> Graph:
        """The graph with its symbolic dimensions replaced by what ``feeds`` say."""
        sizes: dict[str, int] = {}
        for info in self.io.inputs:
            for dim, size in zip(info.shape, feeds[info.name].shape, strict=True):
                if isinstance(dim, str) and dim.isidentifier():
                    sizes[dim] = int(size)
                elif isinstance(dim, int) and dim != size:
                    raise RuntimeRefused(
                        f"{self.runtime} failed to run the model: the input {info.name!r} has the shape "
                        f"{feeds[info.name].shape}, expected {info.shape}."
                    )
        return self.graph.bind(sizes) if sizes else self.graph

    def folded(self, graph: Graph) -> dict[int, np.ndarray]:
        """Elements of the constant values of ``graph`` (which may be a bound form of the model's) that work or outputs
        read.
        """
        from rlflow.frontends.folding import Folder

        folder = Folder(graph, self.constants)
        try:
            return {value: np.asarray(folder.folded(value)) for value in constant_values(graph)}
        except RlflowError as error:
            raise RuntimeRefused(f"{self.runtime} refused to load the model: {error}") from error


def constant_values(graph: Graph) -> list[int]:
    """Constant values that something computed, or a reader of the graph, reads."""
    found = {value for value in graph.outputs() if graph.is_const(graph.producer(value))}
    for node in graph.order():
        if not graph.is_const(node):
            found.update(v for v in graph.node_inputs(node) if v >= 0 and graph.is_const(graph.producer(v)))
    return sorted(found)


def numpy_type(dtype: int) -> np.dtype[Any]:
    """The numpy type of an ONNX element type."""
    from rlflow.frontends.constants import numpy_dtype

    return numpy_dtype(dtype)


def plain(array: np.ndarray) -> np.ndarray:
    """bfloat16, which numpy itself does not know, as float32."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
