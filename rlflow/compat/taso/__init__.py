"""The ``taso`` module: TASO's Python interface (version 0.1.0) over rlflow, without CUDA, TASO_HOME or its bugs.

This is rlflow's own implementation of that interface, not the original program. ``docs/compat-taso.md`` lists every
name and how it differs. Installed as the top-level module ``taso``, which hands on these very objects.
"""

from __future__ import annotations

import array
import ctypes

import numpy as np

from rlflow.compat.taso.names import (
    get_activation_mode,
    get_data_type,
    get_padding_mode,
    input_weight_names,
    onnx_datatype_tostring,
    op_table,
    operator_attrs,
)
from rlflow.compat.taso.onnx_export import export_onnx
from rlflow.compat.taso.onnx_models import (
    InputNotFoundError,
    _check_output,  # noqa: F401 - scripts with importers of their own call it
    import_node,
    load_onnx,
    xf_operators,
)
from rlflow.compat.taso.optimizing import optimize
from rlflow.compat.taso.pygraph import PyGraph, PyModel, from_rlflow, new_graph
from rlflow.compat.taso.store import PyTensor

#: The version of TASO whose interface this is.
__version__ = "0.1.0"

__all__ = [
    "InputNotFoundError",
    "PyGraph",
    "PyModel",
    "PyTensor",
    "array",
    "ctypes",
    "export_onnx",
    "from_rlflow",
    "get_activation_mode",
    "get_data_type",
    "get_padding_mode",
    "import_node",
    "input_weight_names",
    "load_onnx",
    "new_graph",
    "np",
    "onnx_datatype_tostring",
    "op_table",
    "operator_attrs",
    "optimize",
    "xf_operators",
]
