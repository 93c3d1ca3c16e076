"""What our kernels take at the places of a model where they could work, beside what the runtime's own take."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from rlflow.kernels.algorithms import ALGORITHMS, worth_trying
from rlflow.kernels.plan import Choice

if TYPE_CHECKING:
    from rlflow.frontends.kernel_sites import Site
    from rlflow.runtime import NodeTime

__all__ = ["GROWTH", "Profiler", "SiteGraph", "chosen", "measured", "variants"]

#: All weights of a model together may become so many times their own bytes larger. Prepared, they are mapped and not
#: copied, which saves as much.
GROWTH = 1.0
#: An algorithm is chosen for a node where it takes less than this part of the runtime's own time.
_WORTH = 0.97
#: One that keeps transformed weights takes memory: it must take less than this part of the time of one that does not.
_WORTH_MEMORY = 0.95
#: Models with more weights are not tried with transformed ones: a variant of them would be too large for one piece.
_MOST_BYTES = 400_000_000
#: Measuring: so many sessions of each variant in turn, with about so many milliseconds of runs in each. Where the time
#: is limited, runs should take so large a part of one turn.
_ROUNDS, _ROUND_MS, _LONG_RUNS, _LEAST_RUNS, _MOST_RUNS = 3, 1000.0, 1, 3, 15
_RUNS_PART = 0.3
#: What takes so many times the least time at its site after the first turn is not measured again.
_BEHIND = 1.25


class SiteGraph(Protocol):
    """A runtime's graph whose nodes kernels can do, as :mod:`rlflow.frontends.blocked` has two."""

    @property
    def weight_bytes(self) -> int: ...

    def sites(self) -> Sequence[Site]: ...

    def with_kernels(self, attributes: Mapping[str, Mapping[str, int]]) -> bytes | str:
        """The model with kernels, or its path."""
        ...


class Profiler(Protocol):
    """What times the nodes of a model with kernels: a worker whose runtime has the library."""

    def profile(self, model: bytes | str, feeds: Mapping[str, Any], *, runs: int) -> list[NodeTime]:
        """The time of each node."""
        ...


def measured(
    graph: SiteGraph, profiler: Profiler, feeds: Mapping[str, Any], seconds: float | None = None, long: bool = False
) -> dict[str, dict[str, float]]:
    """Microseconds of each site, by its name and then by algorithm ("" is ONNX Runtime's own).

    All are measured in the model's company, by the runtime's profiler, one variant of the whole model after the other:
    beside other layers' weights, a transformed filter may not stay in the cache. The least of some medians is kept,
    because other programs on the machine can only add.

    After the first turn only :func:`contenders` are measured again. No variant is begun that would probably end after
    ``seconds``; what is not reached has no time. ONNX Runtime's own and the first variant are measured in any case.
    ``long``: a run takes so long that few of them must do.
    """
    began, sites = time.monotonic(), graph.sites()
    found: dict[str, dict[str, float]] = {site.name: {} for site in sites}
    least = _LONG_RUNS if long else _LEAST_RUNS
    runs, shapes, took = least, dict[str, tuple[int, ...]](), list[float]()
    most = _ROUND_MS if seconds is None else min(_ROUND_MS, 1000.0 * _RUNS_PART * seconds / _most_variants(sites))
    for turn in range(_ROUNDS):
        if turn == 0:
            batch: Iterable[dict[str, str]] = variants(sites, shapes, graph.weight_bytes <= _MOST_BYTES)
        else:
            batch = again = contenders(_pooled(found, sites, shapes))
            if seconds is not None and time.monotonic() - began + len(again) * median(took) > seconds:
                break
        for doing in batch:
            spent = time.monotonic() - began
            # The first time, weights are brought into other forms as well.
            expected = median(took) if turn else max(took, default=0.0)
            if seconds is not None and (turn or len(took) > 1) and spent + expected >= seconds:
                return _pooled(found, sites, shapes)
            attributes = {name: ALGORITHMS[one].attributes() for name, one in doing.items() if one}
            nodes = profiler.profile(graph.with_kernels(attributes), feeds, runs=runs)
            us = {node.name: node.us for node in nodes}
            shapes |= {} if doing else {node.name: node.shape for node in nodes if node.shape is not None}
            _keep(found, sites, doing, us)
            runs = int(min(max(most / max(sum(us.values()) / 1000.0, 0.001), least), _MOST_RUNS))
            took.append(time.monotonic() - began - spent)
    return _pooled(found, sites, shapes)


def contenders(times: Mapping[str, Mapping[str, float]]) -> list[dict[str, str]]:
    """Algorithms by site ("" is ONNX Runtime's own), so that each site has each of those that may yet be its fastest;
    sites with fewer of them begin again. ``times``: what is known, microseconds by site and algorithm.
    """
    able: dict[str, list[str]] = {}
    for site, known in times.items():
        within = _BEHIND * min(known.values(), default=0.0)
        able[site] = [one for one, spent in known.items() if spent <= within]
    return [
        {name: names[turn % len(names)] for name, names in able.items() if names}
        for turn in range(max(map(len, able.values()), default=0))
    ]


def _most_variants(sites: Sequence[Site]) -> int:
    """How many variants there are at most."""
    kinds = {site.kind for site in sites}
    return 1 + max((sum(one.does(kind) for one in ALGORITHMS.values()) for kind in kinds), default=0)


def _keep(
    found: Mapping[str, dict[str, float]], sites: Sequence[Site], doing: Mapping[str, str], us: Mapping[str, float]
) -> None:
    """Keep the least times of the algorithms that a variant ran; with it, the nodes that it makes superfluous."""
    for site in sites:
        if site.name not in us or (doing and site.name not in doing):
            continue
        algorithm = doing.get(site.name, "")
        spent = us[site.name] + sum(us.get(other, 0.0) for other in site.others)
        found[site.name][algorithm] = min(found[site.name].get(algorithm, float("inf")), spent)


def _pooled(
    found: Mapping[str, Mapping[str, float]], sites: Sequence[Site], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, dict[str, float]]:
    """Sites of one kind and size whose first operands have one shape do the same work: each has the mean of all, so
    that noise does not choose another algorithm for each.
    """
    alike: dict[tuple[object, ...], list[str]] = {}
    for site in sites:
        alike.setdefault((site.kind, site.sizes, shapes.get(site.name, site.name)), []).append(site.name)
    pooled: dict[str, dict[str, float]] = {}
    for names in alike.values():
        common = set.intersection(*(set(found[name]) for name in names))
        means = {one: sum(found[name][one] for name in names) / len(names) for one in found[names[0]] if one in common}
        pooled |= dict.fromkeys(names, means)
    return pooled


def variants(
    sites: Sequence[Site], shapes: Mapping[str, Sequence[int]], may_keep: bool = True
) -> Iterator[dict[str, str]]:
    """Algorithms by site, so that each site has each of its algorithms once; ONNX Runtime's own come first, and tell
    the shape of each site's first operand, which are read after that. ``may_keep``: also those that keep transformed
    weights. The time may end before the last: those come first of which one at least is often fast.
    """
    yield {}
    tried = {site.name: worth_trying(site.kind, site.sizes, shapes.get(site.name)) for site in sites}
    able = {site: [one for one in names if may_keep or not _keeps_weights(one)] for site, names in tried.items()}
    ordered = {site: sorted(names, key=_comes_late) for site, names in able.items()}
    for turn in range(max(map(len, ordered.values()), default=0)):
        yield {name: names[turn] for name, names in ordered.items() if turn < len(names)}


def _comes_late(name: str) -> bool:
    """Large tiles suit many pixels, and small ones of transformed weights few; the other two are seldom the fastest."""
    return ALGORITHMS[name].coarse == ALGORITHMS[name].keeps_weights


def chosen(
    sites: Sequence[Site], times: Mapping[str, Mapping[str, float]], algorithms: Sequence[str], room: float = math.inf
) -> list[Choice]:
    """The fastest of these algorithms for each site, where it is faster than the runtime's own. ``room``: by how many
    bytes all weights together may grow; these go where one saves most.
    """
    small = [name for name in algorithms if not _keeps_weights(name)]
    usual = {one.name: _fastest(one, times[one.name], small) for one in sites}
    best = {one.name: _fastest(one, times[one.name], algorithms) for one in sites}
    growth = {
        one.name: ALGORITHMS[found.algorithm].more_bytes(one.sizes)
        for one in sites
        if (found := best[one.name]) is not None and _keeps_weights(found.algorithm)
    }

    def worth(name: str) -> float:
        before, after = (times[name][one.algorithm if one else ""] for one in (usual[name], best[name]))
        return (before - after) / max(growth[name], 1)

    for name in sorted(growth, key=worth, reverse=True):
        if growth[name] > room:
            best[name] = usual[name]
        else:
            room -= growth[name]
    return [found for one in sites if (found := best[one.name]) is not None]


def _fastest(site: Site, times: Mapping[str, float], algorithms: Sequence[str]) -> Choice | None:
    """The fastest of these algorithms, ``None`` where the runtime's own is as fast."""
    own, known = times.get(""), [(times[name], name) for name in algorithms if name in times]
    if own is None or not known:
        return None
    least, name = min(known, key=_with_memory)
    return Choice(site.name, site.sizes, name, round(own / least, 3)) if 0.0 < least < _WORTH * own else None


def _with_memory(known: tuple[float, str]) -> float:
    """A time, longer by what the memory of the algorithm should gain."""
    return known[0] / (_WORTH_MEMORY if _keeps_weights(known[1]) else 1.0)


def _keeps_weights(name: str) -> bool:
    return name in ALGORITHMS and ALGORITHMS[name].keeps_weights
