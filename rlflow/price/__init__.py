"""What a graph costs on the machine where it will run.

>>> from rlflow import price
>>> model = price.make("analytic")
>>> model.cost(graph).total_ms

A cost model partitions the graph into the regions that a runtime fuses and prices each of them: ``analytic`` by a
roofline, without a clock; ``onnxruntime``, ``openvino`` and ``cudnn`` by timing the region alone, once, and keeping
the price in a database. ``end-to-end`` times whole graphs, in a runtime or on your own device. Other packages add more
by the entry points ``rlflow.costs``; a runtime whose regions can be timed alone is a cost model by its own name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlflow.price.protocol import CostModel, CostReport, FillReport, GraphTime, RegionCost
from rlflow.price.records import Price
from rlflow.registry import Registry

__all__ = [
    "COSTS", "CostModel", "CostReport", "FillReport", "GraphTime", "Price", "RegionCost", "make", "names", "register",
]  # fmt: skip

Factory = Callable[..., CostModel]


class _Costs(Registry[Factory]):
    """Cost models; one is made for every runtime that has none of its own and whose regions can be timed alone."""

    def names(self) -> list[str]:
        from rlflow.runtime import RUNTIMES

        return sorted({*super().names(), *(name for name, kind in RUNTIMES.usable() if kind.prices_regions)})

    def get(self, name: str) -> Factory:
        from rlflow.runtime import RUNTIMES

        if not self.has(name) and RUNTIMES.has(name) and RUNTIMES.get(name).prices_regions:
            from rlflow.price.measured import regions_in

            self.opened[name] = regions_in(RUNTIMES.get(name))
        return super().get(name)


def _accept(name: str, factory: Any) -> None:
    if not callable(factory):
        raise TypeError(f"{factory!r} makes no cost model")


#: Imported when made, so that listing the models opens no library.
COSTS = _Costs(
    "cost model",
    group="rlflow.costs",
    places={
        "analytic": "rlflow.price.analytic:AnalyticCost",
        "cudnn": "rlflow.price.cudnn:CudnnCost",
        "end-to-end": "rlflow.price.endtoend:EndToEndCost",
        "onnxruntime": "rlflow.price.measured:OnnxRuntimeCost",
    },
    capabilities={"measures": False, "whole": False, "on_gpu": False},
    accept=_accept,
)


def names() -> list[str]:
    """Names of all cost models, in alphabetical order."""
    return COSTS.names()


def register(name: str, factory: Factory) -> None:
    """Add a cost model of your own: ``factory(**options)`` makes it. Raises UsageError where the name is taken."""
    COSTS.register(name, factory)


def make(spec: str, /, **options: Any) -> CostModel:
    """The cost model ``spec``, with options of its own where given: ``"end-to-end:tolerance=0.02"``.

    Options that all models take: ``threads`` and ``dims`` (values of symbolic dimensions, for measuring); others are
    the model's own. One that is ``None`` is not given.

    Raises UsageError for an unknown name or option.
    """
    maker, chosen = COSTS.chosen(spec, **options)
    found: CostModel = maker(**chosen)
    return found
