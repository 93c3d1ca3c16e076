"""Decisions for all nodes of a graph at once, and what they are worth.

One interface: a :class:`PlacementTask` says how many choices each node has and what a decision for all of them is worth
(``evaluate``, with the kind of evidence); a placer's ``decide(task, rng)`` returns one integer a node. The placers are
in :data:`PLACERS`.
"""

from __future__ import annotations

from rlflow.placement.lower_bounds import lower_bound
from rlflow.placement.task import Evaluation, PlacementTask, Placer
from rlflow.placement.work import Devices, Work
from rlflow.registry import Registry

__all__ = ["PLACERS", "Devices", "Evaluation", "PlacementTask", "Placer", "Work", "lower_bound"]


def _accept(name: str, kind: type[Placer]) -> None:
    if getattr(kind, "name", None) != name or not callable(getattr(kind, "decide", None)):
        raise TypeError(f"it has no method `decide`, or does not call itself {name!r}")


#: All placers: ours, and those of other distributions. ``keeps_limits``: whether it looks at memory limits.
PLACERS: Registry[type[Placer]] = Registry(
    "placer",
    group="rlflow.placers",
    places={
        "annealing": "rlflow.placement.searched:AnnealedPlacement",
        "brkga": "rlflow.placement.searched:RandomKeys",
        "contiguous": "rlflow.placement.unsearched:Contiguous",
        "critical-path": "rlflow.placement.list_schedules:CriticalPath",
        "etf": "rlflow.placement.list_schedules:Etf",
        "exact": "rlflow.placement.optimum:Exact",
        "heft": "rlflow.placement.list_schedules:Heft",
        "min-cut": "rlflow.placement.min_cut:MinCut",
        "random": "rlflow.placement.searched:RandomPlacements",
        "single": "rlflow.placement.unsearched:SingleDevice",
    },
    capabilities={"keeps_limits": True},
    accept=_accept,
)
