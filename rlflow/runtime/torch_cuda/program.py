"""A graph as a list of torch calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rlflow.errors import RuntimeRefused
from rlflow.runtime.models import numpy_type
from rlflow.runtime.torch_cuda.torch_calls import OPS, Attrs, Op, Tensor

if TYPE_CHECKING:
    from rlflow.graph import Graph

#: By ONNX element type.
DTYPES = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64, 9: torch.bool,
    10: torch.float16, 11: torch.float64, 16: torch.bfloat16,
}  # fmt: skip


class Program:
    """A graph with numbers for all dimensions as a list of torch calls, on any device.

    ``constants``: arrays by value. ``half``: the type in which float32 tensors are stored and computed, if any.
    """

    def __init__(
        self, graph: Graph, constants: Mapping[int, np.ndarray], device: str, half: torch.dtype | None = None
    ) -> None:
        self.graph, self.device, self._half = graph, device, half
        self._fixed = {value: self.tensor(array, graph.dtype(value)) for value, array in constants.items()}
        self._calls: list[tuple[Op, Attrs, list[int], list[int], list[torch.dtype]]] = []
        for node in graph.order():
            if graph.op(node) in ("Input", "Constant") or graph.is_const(node) or self._known(node):
                continue
            self._calls.append(self._call(node))
        last = {value: k for k, (_, _, inputs, _, _) in enumerate(self._calls) for value in inputs}
        keep = {*graph.outputs(), *self._fixed}
        self._free = [[v for v, at in last.items() if at == k and v not in keep] for k in range(len(self._calls))]

    def tensor(self, array: np.ndarray, dtype: int) -> Tensor:
        """An array on the device, in the type that it is stored in there."""
        plain = array.astype(np.float32) if array.dtype.name == "bfloat16" else array
        return torch.from_numpy(np.array(plain)).to(self.device, self.stored(dtype))

    def stored(self, dtype: int) -> torch.dtype:
        """The type of tensors that the graph has in ``dtype``."""
        if dtype not in DTYPES:
            raise RuntimeRefused(f"torch has no type for ONNX's element type {dtype}.")
        kind = DTYPES[dtype]
        return self._half if kind == torch.float32 and self._half is not None else kind

    def __call__(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The graph's outputs for inputs in the graph's order."""
        graph = self.graph
        values: dict[int, Any] = dict(self._fixed)
        for node, tensor in zip(graph.inputs(), inputs, strict=True):
            values[graph.node_outputs(node)[0]] = tensor
        for (op, attrs, operands, results, types), free in zip(self._calls, self._free, strict=True):
            found = op(attrs, [None if v < 0 else values[v] for v in operands], types)
            for value, tensor in zip(results, found if isinstance(found, (list, tuple)) else [found], strict=False):
                values[value] = tensor
            for value in free:
                values.pop(value, None)
        return [values[value] for value in graph.outputs()]

    def _known(self, node: int) -> bool:
        """Whether the node only says what shapes are; its results then count as constants."""
        graph = self.graph
        outputs = graph.node_outputs(node)
        known = [graph.data(value) for value in outputs]
        if any(data is None or not all(isinstance(x, int) for x in data) for data in known):
            return False
        for value, data in zip(outputs, known, strict=True):
            array = np.array(data, numpy_type(graph.dtype(value))).reshape(graph.shape(value) or ())
            self._fixed[value] = self.tensor(array, graph.dtype(value))
        return True

    def _call(self, node: int) -> tuple[Op, Attrs, list[int], list[int], list[torch.dtype]]:
        graph = self.graph
        name = graph.op(node)
        if name not in OPS:
            raise RuntimeRefused(f"torch cannot run the model: there is no translation of {name}.")
        outputs = list(graph.node_outputs(node))
        shapes = [graph.shape(value) for value in outputs]
        attrs = {**graph.attrs(node), "shapes": shapes, "op": name}
        return OPS[name], attrs, list(graph.node_inputs(node)), outputs, [self.stored(graph.dtype(v)) for v in outputs]
