"""The names that the original's compiled module had."""

from __future__ import annotations

from rlflow.compat.taso import (
    PyGraph,
    PyModel,
    PyTensor,
    array,
    ctypes,
    get_activation_mode,
    get_data_type,
    get_padding_mode,
    np,
    op_table,
)

__all__ = [
    "PyGraph",
    "PyModel",
    "PyTensor",
    "array",
    "ctypes",
    "get_activation_mode",
    "get_data_type",
    "get_padding_mode",
    "np",
    "op_table",
]
