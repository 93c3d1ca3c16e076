"""The parameter spaces of our own kernels as an engine: a sketch is ONNX Runtime's own kernel or an algorithm of ours,
its parameters are those of :func:`rlflow.kernels.spaces`.

Programs are timed inside the model, by the runtime's profiler: beside other layers the weights are not in the near
caches, as they would be in a kernel that runs alone. Sites that are alike are one subgraph, and do the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlflow.errors import CostError, RuntimeCrashed, RuntimeRefused
from rlflow.kernels.algorithms import ALGORITHMS, worth_trying
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
#: Sites of one kind and sizes are alike where the runtime's own times differ by less than this factor: half as many
#: pixels in each direction make it four.
_ALIKE = 2.5
#: Runs of the whole model in a session: about so many milliseconds, within these bounds.
_RUN_MS, _LEAST_RUNS, _MOST_RUNS = 300.0, 3, 10


class KernelSites(NamedTuple):
    """Sites of a model that are alike, in groups; and runs of the whole model in a session."""

    groups: Sequence[Sequence[Site]]
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
            return cls(BlockedGraph(worker.optimized(source), block_here()), worker, feeds, like)
        except BaseException:
            worker.close()
            raise

    @cached_property
    def place(self) -> str:
        """Processor, runtime, threads and the kernels' library."""
        from rlflow.kernels.shared_library import digest

        found = self._worker.describe()
        names = ("device", "runtime", "version", "threads")
        return "; ".join(["kernels", *(f"{name} {found.get(name, '')}" for name in names), digest()[:16]])

    @cached_property
    def subgraphs(self) -> Sequence[TunedSubgraph]:
        """One for each group of alike sites."""
        return [
            TunedSubgraph(self._name(group), space_of(group[0].kind), 0.0, 1.0, group[0].kind) for group in self.groups
        ]

    @property
    def cpu_seconds(self) -> float:
        """What the worker has spent; 0 where the system does not say."""
        return self._time.of(self._worker.pid)

    def features(self, subgraph: int, programs: Sequence[TensorProgram]) -> np.ndarray:
        return self.subgraphs[subgraph].space.features(programs)

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
        own = self._times({}, _LEAST_RUNS)
        whole = sum(one.us for one in own.values()) / 1000.0
        runs = int(min(max(_RUN_MS / max(whole, 0.001), _LEAST_RUNS), _MOST_RUNS))
        worth = [site for site in self.graph.sites() if site.name in own]
        return KernelSites(_grouped([s for s in worth if worth_trying(s.kind, own[s.name].rows)], own), runs)

    def _measured(self, group: Sequence[Site], program: TensorProgram) -> float:
        found = self.attributes(next(at for at, one in enumerate(self.groups) if one is group), program)
        made = {} if found is None else ALGORITHMS[found[0]].attributes(found[1])
        try:
            times = self._times({} if found is None else {site.name: made for site in group}, self.sites.runs)
        except (RuntimeCrashed, RuntimeRefused):
            return INVALID
        names = [name for site in group for name in (site.name, *site.others)]
        return max(sum(times[name].us for name in names if name in times), 1e-3) * 1e-6

    def _times(self, attributes: Mapping[str, Mapping[str, int]], runs: int) -> dict[str, NodeTime]:
        model = self.graph.with_kernels(attributes)
        return {one.name: one for one in self._worker.profile(model, self._feeds, runs=runs)}

    @staticmethod
    def _name(group: Sequence[Site]) -> str:
        sizes = "x".join(map(str, group[0].sizes))
        return f"{group[0].kind} {sizes} at {group[0].name}, {len(group)} alike"


def space_of(kind: str) -> Space:
    """The programs of a kind of site."""
    sketches = [Sketch(OWN, ())]
    for name, one in ALGORITHMS.items():
        if one.kind == kind:
            steps = tuple(
                Steps(key, _EDITS.get(key, "tile"), tuple(sorted(values))) for key, values in one.space.items()
            )
            sketches.append(Sketch(name, (), steps))
    return Space(tuple(sketches))


def _grouped(sites: Sequence[Site], own: Mapping[str, NodeTime]) -> list[list[Site]]:
    """Sites that are alike, in the graph's order. Raises CostError where there is none."""
    groups: list[list[Site]] = []
    for site in (one for one in sites if one.name in own):
        for group in groups:
            first = group[0]
            ratio = own[site.name].us / max(own[first.name].us, 1e-9)
            if (site.kind, site.sizes) == (first.kind, first.sizes) and 1 / _ALIKE < ratio < _ALIKE:
                group.append(site)
                break
        else:
            groups.append([site])
    if not groups:
        raise CostError("ONNX Runtime's graph of the model has no node that a kernel can do.")
    return groups
