"""What a taso graph tells about itself: operators, edges, attributes, weights."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from rlflow.compat.taso.store import Dim, Record, Store
from rlflow.errors import UsageError

Op = Mapping[str, int] | int


class Inspection:
    """Methods that read the graph. An ``op`` is one of ``get_operator_list()``, a ``srcOp``/``dstOp``, or a guid."""

    _store: Store

    def get_operator_list(self) -> list[dict[str, int]]:
        """All operators but inputs and weights, in topological order, as ``{"guid": number}``."""
        records = self._store.records.values()
        return [{"guid": record.guid} for record in records if record.type not in ("Input", "Weight")]

    def get_operator_type(self, op: Op) -> str:
        """The operator's ONNX name; ``Input`` or ``Weight`` for the other two."""
        return self._record(op, "get_operator_type").type

    def get_input_edges(self, op: Op) -> list[dict[str, Any]]:
        """One ``{"srcOp", "dstOp", "srcIdx", "dstIdx"}`` per operand that is there, weights included."""
        record = self._record(op, "get_input_edges")
        return [
            {
                "srcOp": {"guid": tensor.tensor[0]},
                "dstOp": {"guid": record.guid},
                "srcIdx": tensor.tensor[1],
                "dstIdx": slot,
            }
            for slot, tensor in enumerate(record.inputs)
            if tensor is not None
        ]

    def get_input_dims(self, op: Op, idx: int) -> list[Dim]:
        """Extents of operand ``idx``. Raises UsageError where it is absent or of unknown rank."""
        record = self._record(op, "get_input_dims")
        return _dims(record, record.inputs, idx, "get_input_dims", "operand")

    def get_output_dims(self, op: Op, idx: int) -> list[Dim]:
        """Extents of result ``idx``. Raises UsageError where there is none or its rank is unknown."""
        record = self._record(op, "get_output_dims")
        return _dims(record, record.outputs, idx, "get_output_dims", "result")

    def get_num_outputs(self, op: Op) -> int:
        """How many results the operator has."""
        return len(self._record(op, "get_num_outputs").outputs)

    def get_split_lens(self, op: Op) -> list[int]:
        """The sizes of a Split's parts. Raises UsageError for another operator."""
        record = self._record(op, "get_split_lens")
        if record.type != "Split":
            raise UsageError(f"taso: get_split_lens: operator {record.guid} is {record.type}; expected Split.")
        axis = int(record.attrs.get("axis", 0))
        return [tensor.dim(axis) for tensor in record.outputs]  # type: ignore[misc]

    def get_weight_value(self, op: Op) -> array[float]:
        """A weight's elements in row-major order, as float32. Raises UsageError for another operator."""
        record = self._record(op, "get_weight_value")
        if record.type != "Weight":
            raise UsageError(f"taso: get_weight_value: operator {record.guid} is {record.type}; expected Weight.")
        return array("f", np.ravel(self._elements(record)).astype(np.float32).tobytes())

    def get_operator_attr(self, op: Op, attrname: str) -> Any:
        """An attribute: kernel_shape, strides, pads (top, left, bottom, right), group, axis, split, perm, axes, …

        Raises UsageError, with the names there are, for another one.
        """
        record = self._record(op, "get_operator_attr")
        if attrname not in record.attrs:
            names = ", ".join(sorted(record.attrs)) or "none"
            raise UsageError(
                f"taso: get_operator_attr: {record.type} {record.guid} has no attribute {attrname!r}; it has {names}."
            )
        value = record.attrs[attrname]
        return list(value) if isinstance(value, (list, tuple)) else value

    def _record(self, op: Op, call: str) -> Record:
        guid = op.get("guid") if isinstance(op, Mapping) else op
        record = self._store.records.get(guid) if isinstance(guid, int) else None
        if record is None:
            raise UsageError(f"taso: {call}: {op!r} is no operator of this graph.")
        return record

    def _elements(self, record: Record) -> Any:
        elements = self._store.constants.get(record.attrs["digest"])
        if elements is None:
            raise UsageError(
                f"taso: nobody has the elements of weight {record.guid}; the graph came without constants."
            )
        return elements


def _dims(record: Record, tensors: tuple[Any, ...], idx: int, call: str, what: str) -> list[Dim]:
    tensor = tensors[idx] if 0 <= idx < len(tensors) else None
    if tensor is None or tensor.shape is None:
        found = f"has {len(tensors)}" if tensor is None else "does not know its rank"
        raise UsageError(f"taso: {call}: {record.type} {record.guid} {found}; {what} {idx} was asked for.")
    return list(tensor.shape)
