"""The parameter spaces of our own kernels as an engine: a sketch is ONNX Runtime's own kernel or an algorithm of ours,
its parameters are those of :func:`rlflow.kernels.spaces`.

Programs are timed inside the model, by the runtime's profiler: beside other layers the weights are not in the near
caches, as they would be in a kernel that runs alone. Sites that are alike are one subgraph, and do the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlflow.errors import CostError, ModelError, RuntimeCrashed, RuntimeRefused
from rlflow.kernels.algorithms import ALGORITHMS, worth_trying
from rlflow.kernels.known_sites import SitePlace
from rlflow.tuner import kernel_features
from rlflow.tuner.child_time import ChildTime
from rlflow.tuner.engines import INVALID, TunedSubgraph
from rlflow.tuner.spaces import Sketch, Space, Steps, TensorProgram

if TYPE_CHECKING:
    from rlflow.frontends.blocked import BlockedGraph
    from rlflow.frontends.kernel_sites import Site
    from rlflow.runtime import NodeTime, Worker

#: The sketch that changes nothing.
OWN = "onnxruntime"
#: Which edit changes a parameter; what is not named here is a tile's size.
_EDITS = {"chunk": "parallel", "rows": "parallel"}
#: Sites of one kind and sizes whose shapes are not known are alike where the runtime's own times differ by less than
#: this factor: half as many pixels in each direction make it four.
_ALIKE = 2.5
#: Runs of the whole model in a session: about so many milliseconds, within these bounds.
_RUN_MS, _LEAST_RUNS, _MOST_RUNS = 300.0, 3, 10


class KernelSites(NamedTuple):
    """Sites of a model that are alike, in groups; the shape of the first input of each group, where it is known; and
    runs of the whole model in a session.
    """

    groups: Sequence[Sequence[Site]]
    shapes: Sequence[tuple[int, ...] | None]
    runs: int


class KernelEngine:
    """Times kernels at the sites of a model. ``graph``: the runtime's graph of it; ``worker``: with the kernels'
    library; ``feeds``: the model's inputs; ``like``: what another engine of the model found out.
    """

    def __init__(
        self, graph: BlockedGraph, worker: Worker, feeds: Mapping[str, Any], like: KernelSites | None = None
    ) -> None:
        self.graph, self._worker, self._feeds = graph, worker, feeds
        self._time = ChildTime()
        self.sites = like or self._found()

    @property
    def groups(self) -> Sequence[Sequence[Site]]:
        """Sites that are alike."""
        return self.sites.groups

    @classmethod
    def of(
        cls, source: bytes, feeds: Mapping[str, Any], threads: int = 1, like: KernelSites | None = None
    ) -> KernelEngine:
        """The engine of a serialised model. Raises CostError where no kernel of ours has a place in it."""
        from rlflow.frontends.blocked import BlockedGraph
        from rlflow.kernels.preparing import block_here
        from rlflow.kernels.shared_library import library_path, unavailable
        from rlflow.runtime import RuntimeOptions, Worker

        reason = unavailable()
        if reason is not None:
            raise CostError(f"The kernels cannot be used here: {reason}.")
        worker = Worker(RuntimeOptions(threads=threads, library=library_path()))
        try:
            return cls(BlockedGraph(worker.optimized(source), block_here(), threads), worker, feeds, like)
        except BaseException:
            worker.close()
            raise

    @cached_property
    def place(self) -> str:
        """Processor, runtime, threads, the kernels' library and how a time is made of runs."""
        from rlflow.kernels.shared_library import digest

        found = self._worker.describe()
        names = [f"{name} {found.get(name, '')}" for name in ("device", "runtime", "version", "threads")]
        return "; ".join(["kernels, least of the runs", *names, digest()[:16]])

    def site_place(self, threads: int) -> SitePlace:
        """Where what is found here holds, as other parts of the program ask for it."""
        from rlflow.kernels.shared_library import digest

        found = self._worker.describe()
        return SitePlace(str(found["device"]), str(found["version"]), threads, digest())

    @cached_property
    def subgraphs(self) -> Sequence[TunedSubgraph]:
        """One for each group of alike sites."""
        return [self._subgraph(*one) for one in zip(self.groups, self.sites.shapes, strict=True)]

    @property
    def cpu_seconds(self) -> float:
        """What the worker has spent; 0 where the system does not say."""
        return self._time.of(self._worker.pid)

    def features(self, subgraph: int, programs: Sequence[TensorProgram]) -> np.ndarray:
        return kernel_features.features(self.subgraphs[subgraph], programs)

    def measure(self, subgraph: int, programs: Sequence[TensorProgram]) -> list[float]:
        return [self._measured(self.groups[subgraph], one) for one in programs]

    def attributes(self, subgraph: int, program: TensorProgram) -> tuple[str, dict[str, int]] | None:
        """The algorithm and its tuning that a program stands for; ``None``: the runtime's own kernel."""
        sketch = self.subgraphs[subgraph].space.sketches[program.sketch]
        if sketch.name == OWN:
            return None
        chosen = {one.name: one.values[at] for one, at in zip(sketch.steps, program.values, strict=True)}
        default = {name: values[0] for name, values in ALGORITHMS[sketch.name].space.items()}
        return sketch.name, {name: value for name, value in chosen.items() if value != default[name]}

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    # --- timing -----------------------------------------------------------------------------------------------------

    def _found(self) -> KernelSites:
        """Where kernels of ours have a place, by the runtime's own times."""
        own = self.times({}, _LEAST_RUNS)
        whole = sum(one.us for one in own.values()) / 1000.0
        runs = int(min(max(_RUN_MS / max(whole, 0.001), _LEAST_RUNS), _MOST_RUNS))
        groups = _grouped(self._worth(own), own, self._alike)
        if not groups:
            raise CostError("ONNX Runtime's graph of the model has no node that a kernel can do.")
        return KernelSites(groups, [own[group[0].name].shape for group in groups], runs)

    def _worth(self, own: Mapping[str, NodeTime]) -> list[Site]:
        """The sites that something could do; ``own``: the times of the runtime's nodes."""
        present = [site for site in self.graph.sites() if site.name in own]
        return [site for site in present if worth_trying(site.kind, site.sizes, own[site.name].shape)]

    def _alike(self, site: Site) -> tuple[object, ...]:
        """What sites that are alike share, beside the shape."""
        return site.kind, site.sizes

    def _measured(self, group: Sequence[Site], program: TensorProgram) -> float:
        found = self.attributes(next(at for at, one in enumerate(self.groups) if one is group), program)
        return self.timed(group, None if found is None else ALGORITHMS[found[0]].attributes(found[1]))

    def timed(self, group: Sequence[Site], made: Mapping[str, int] | None) -> float:
        """Seconds of these sites together, where kernels with these attributes do them; ``None``: the runtime's own."""
        try:
            times = self.times({} if made is None else {site.name: made for site in group}, self.sites.runs)
        except (ModelError, RuntimeCrashed, RuntimeRefused):
            return INVALID
        return sum(site_seconds(site, times) for site in group)

    def times(self, attributes: Mapping[str, Mapping[str, int]], runs: int) -> dict[str, NodeTime]:
        """Times of the nodes, by name, where the sites of these names are done by kernels with these attributes."""
        model = self.graph.with_kernels(attributes)
        return {one.name: one for one in self._worker.profile(model, self._feeds, runs=runs)}

    def _subgraph(self, group: Sequence[Site], shape: tuple[int, ...] | None) -> TunedSubgraph:
        first = group[0]
        name = f"{first.kind} {'x'.join(map(str, first.sizes))} at {first.name}, {len(group)} alike"
        sizes = kernel_features.sizes_of(first.sizes, shape, self.graph.block)
        return TunedSubgraph(name, space_of(first.kind, first.sizes), 0.0, 1.0, first.kind, sizes)


def site_seconds(site: Site, times: Mapping[str, NodeTime]) -> float:
    """What a site takes: the least of its runs, which what else the machine does disturbs least."""
    found = (times[name] for name in (site.name, *site.others) if name in times)
    return max(sum(one.us if one.least_us is None else one.least_us for one in found), 1e-3) * 1e-6


def space_of(kind: str, sizes: Sequence[int] = ()) -> Space:
    """The programs of a kind of site, of those that can do one of these sizes."""
    sketches = [Sketch(OWN, ())]
    for name, one in ALGORITHMS.items():
        if one.does(kind) and one.takes(sizes):
            steps = tuple(
                Steps(key, _EDITS.get(key, "tile"), tuple(sorted(values))) for key, values in one.space.items()
            )
            sketches.append(Sketch(name, (), steps))
    return Space(tuple(sketches))


def _grouped(
    sites: Sequence[Site], own: Mapping[str, NodeTime], alike: Callable[[Site], tuple[object, ...]]
) -> list[list[Site]]:
    """Sites that are alike, in the graph's order: they share what ``alike`` says, and their shape; where the runtime
    does not tell shapes, their times tell.
    """
    groups: list[list[Site]] = []
    for site in sites:
        for group in groups:
            here, there = own[site.name], own[group[0].name]
            known = here.shape is not None or 1 / _ALIKE < here.us / max(there.us, 1e-9) < _ALIKE
            if (*alike(site), here.shape) == (*alike(group[0]), there.shape) and known:
                group.append(site)
                break
        else:
            groups.append([site])
    return groups
