"""ONNX in and out: the only door to the onnx libraries.

``load_model`` makes a core graph of a file, ``save_model`` writes a rewritten one back, ``graph_to_model`` makes a
stand-alone model of any core graph, ``reference.evaluate`` runs one. Names are imported when they are first used,
because onnx is a heavy library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlflow.frontends.constants import ConstantStore
    from rlflow.frontends.emitter import expressible, operator_opset
    from rlflow.frontends.exporter import baseline, save_model
    from rlflow.frontends.imported import ImportedModel
    from rlflow.frontends.importer import load_model
    from rlflow.frontends.raising import newest_opset
    from rlflow.frontends.reference import evaluate
    from rlflow.frontends.standalone import graph_to_model

_HOMES = {
    "ConstantStore": "constants",
    "ImportedModel": "imported",
    "baseline": "exporter",
    "evaluate": "reference",
    "expressible": "emitter",
    "graph_to_model": "standalone",
    "load_model": "importer",
    "newest_opset": "raising",
    "operator_opset": "emitter",
    "save_model": "exporter",
}

__all__ = [
    "ConstantStore",
    "ImportedModel",
    "baseline",
    "evaluate",
    "expressible",
    "graph_to_model",
    "load_model",
    "newest_opset",
    "operator_opset",
    "save_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rlflow.frontends' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rlflow.frontends.{_HOMES[name]}"), name)
