"""What our kernels take at the places of a model where they could work, beside what the runtime's own take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rlflow.kernels.algorithms import ALGORITHMS, worth_trying
from rlflow.kernels.plan import Choice

if TYPE_CHECKING:
    from rlflow.frontends.blocked import BlockedGraph
    from rlflow.frontends.kernel_sites import Site
    from rlflow.runtime import NodeTime

__all__ = ["Profiler", "chosen", "measured", "variants"]

#: An algorithm is chosen for a node where it takes less than this part of the runtime's own time.
_WORTH = 0.97
#: Measuring: so many sessions of each variant in turn, with about so many milliseconds of runs in each.
_ROUNDS, _ROUND_MS, _LEAST_RUNS, _MOST_RUNS = 3, 1000.0, 3, 15


class Profiler(Protocol):
    """What times the nodes of a model with kernels: a worker whose runtime has the library."""

    def profile(self, model: bytes, feeds: Mapping[str, Any], *, runs: int) -> list[NodeTime]:
        """The time of each node."""
        ...


def measured(
    graph: BlockedGraph, profiler: Profiler, feeds: Mapping[str, Any], seconds: float | None = None
) -> dict[str, dict[str, float]]:
    """Microseconds of each site, by its name and then by algorithm ("" is ONNX Runtime's own).

    All are measured in the model's company, by the runtime's profiler, one variant of the whole model after the other:
    beside other layers' weights, a transformed filter may not stay in the cache. The least of some medians is kept,
    because other programs on the machine can only add. No new turn begins after ``seconds``; there is one in any case.
    """
    began, sites = time.monotonic(), graph.sites()
    found: dict[str, dict[str, float]] = {site.name: {} for site in sites}
    runs, rows = _LEAST_RUNS, dict[str, int]()
    for turn in range(_ROUNDS):
        if turn and seconds is not None and (time.monotonic() - began) * (turn + 1) / turn > seconds:
            break
        for doing in variants(sites, rows):
            attributes = {name: ALGORITHMS[algorithm].attributes() for name, algorithm in doing.items()}
            nodes = profiler.profile(graph.with_kernels(attributes), feeds, runs=runs)
            us = {node.name: node.us for node in nodes}
            rows |= {} if doing else {node.name: node.rows for node in nodes if node.rows is not None}
            for site in sites:
                if site.name not in us or (doing and site.name not in doing):
                    continue
                algorithm = doing.get(site.name, "")
                spent = us[site.name] + sum(us.get(other, 0.0) for other in site.others)
                found[site.name][algorithm] = min(found[site.name].get(algorithm, float("inf")), spent)
            runs = int(min(max(_ROUND_MS / max(sum(us.values()) / 1000.0, 0.001), _LEAST_RUNS), _MOST_RUNS))
    return found


def variants(sites: Sequence[Site], rows: Mapping[str, int]) -> Iterator[dict[str, str]]:
    """Algorithms by site, so that each site has each of its algorithms once; ONNX Runtime's own come first, and tell
    the rows of each site's first operand, which are read after that.
    """
    yield {}
    able = {site.name: worth_trying(site.kind, rows.get(site.name)) for site in sites}
    for turn in range(max(map(len, able.values()), default=0)):
        yield {name: names[turn] for name, names in able.items() if turn < len(names)}


def chosen(sites: Sequence[Site], times: Mapping[str, Mapping[str, float]], algorithms: Sequence[str]) -> list[Choice]:
    """The fastest of these algorithms for each site, where it is faster than the runtime's own."""
    found = []
    for one in sites:
        own = times[one.name].get("")
        known = [(times[one.name][name], name) for name in algorithms if name in times[one.name]]
        if own is None or not known:
            continue
        least, name = min(known)
        if 0.0 < least < _WORTH * own:
            found.append(Choice(one.name, one.sizes, name, round(own / least, 3)))
    return found
