"""What a graph costs on the machine where it will run.

>>> from rlflow import price
>>> model = price.make("analytic")
>>> model.cost(graph).total_ms

A cost model partitions the graph into the regions that a runtime fuses and prices each of them: ``analytic`` by a
roofline, without a clock; ``onnxruntime``, ``openvino`` and ``cudnn`` by timing the region alone, once, and keeping
the price in a database. ``end-to-end`` times whole graphs, in a runtime or on your own device.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import Any

from rlflow.errors import UsageError
from rlflow.price.protocol import CostModel, CostReport, FillReport, GraphTime, RegionCost

__all__ = ["CostModel", "CostReport", "FillReport", "GraphTime", "RegionCost", "make", "names", "register"]

Factory = Callable[..., CostModel]

# Imported when made, so that listing the models opens no runtime.
_BUILT_IN = {
    "analytic": ("rlflow.price.analytic", "AnalyticCost"),
    "cudnn": ("rlflow.price.cudnn", "CudnnCost"),
    "end-to-end": ("rlflow.price.endtoend", "EndToEndCost"),
    "openvino": ("rlflow.price.openvino", "OpenVinoCost"),
    "onnxruntime": ("rlflow.price.onnxruntime", "OnnxRuntimeCost"),
}
_registered: dict[str, Factory] = {}


def names() -> list[str]:
    """Names of all cost models, in alphabetical order."""
    return sorted({*_BUILT_IN, *_registered})


def register(name: str, factory: Factory) -> None:
    """Add a cost model of your own: ``factory(**options)`` makes it. Raises UsageError where the name is taken."""
    if name in names():
        raise UsageError(f"There is a cost model called {name!r} already; register yours under another name.")
    _registered[name] = factory


def make(name: str, **options: Any) -> CostModel:
    """The cost model ``name``, with options of its own where given: ``"end-to-end:tolerance=0.02"``.

    Options that all models take: ``threads`` and ``dims`` (values of symbolic dimensions, for measuring); others are
    the model's own.

    Raises UsageError for an unknown name or option.
    """
    name, options = _with_spec(name, options)
    if name in _registered:
        return _registered[name](**options)
    if name not in _BUILT_IN:
        near = difflib.get_close_matches(name, names(), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names())}."
        raise UsageError(f"There is no cost model {name!r}; {hint}")
    module, attribute = _BUILT_IN[name]
    try:
        return getattr(importlib.import_module(module), attribute)(**options)
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise UsageError(f"The cost model {name!r} was made with options that it does not take: {error}") from error


def _with_spec(spec: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    name, _, tail = spec.partition(":")
    for part in filter(None, (piece.strip() for piece in tail.split(","))):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"The option {part!r} of cost model {name!r} has no value; write {name}:{part}=… .")
        options = {**options, key.strip(): _value(value.strip())}
    return name, options


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
