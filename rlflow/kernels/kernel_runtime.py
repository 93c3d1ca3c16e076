"""ONNX Runtime with our kernels as a runtime of its own: every model that it opens gets, at each place where a kernel
of ours could work, whichever is fastest there. So prices, comparisons and checks see tuned kernels without knowing it.

The first inputs decide: they say the shapes. What is not known of a place is measured then, by the profiler, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlflow.errors import CostError, ModelError, RuntimeRefused
from rlflow.kernels.known_sites import FAST, FastKernel, SitePlace, known, site_key, tuned_digest
from rlflow.kernels.site_times import chosen, measured
from rlflow.ledger import Ledger
from rlflow.runtime import CPU_PROVIDER, ModelIO, NodeTime, RuntimeOptions, Session, runtime
from rlflow.runtime.base import Runtime

if TYPE_CHECKING:
    from rlflow.frontends.blocked import BlockedGraph
    from rlflow.frontends.kernel_sites import Site

#: Runs that tell the shapes at the places of a model.
_SHAPE_RUNS = 1
NAME = "onnxruntime+kernels"


class OnnxRuntimeWithKernels(Runtime):
    """ONNX Runtime on the processor, whose nodes our kernels do where they are faster."""

    name = NAME
    title = "ONNX Runtime with rlflow's kernels"
    module = "onnxruntime"
    install = "onnxruntime"
    shows_graph = True

    def __init__(self) -> None:
        self._stock = runtime("onnxruntime")

    def missing(self) -> str | None:
        from rlflow.kernels.shared_library import unavailable

        return super().missing() or unavailable()

    def fusion_table(self, provider: str) -> str:
        """As ONNX Runtime fuses: kernels take the places of nodes that it made."""
        return self._stock.fusion_table(provider)

    def start(self) -> None:
        self._stock.start()

    def open(self, source: bytes | str, options: RuntimeOptions) -> SessionWithKernels:
        """A session that learns from its first inputs where kernels work."""
        return SessionWithKernels(source, options, self._stock)

    def interface(self, source: bytes | str, options: RuntimeOptions) -> ModelIO:
        return self._stock.interface(source, _stock_options(options))

    def describe(self, provider: str) -> dict[str, Any]:
        """As ONNX Runtime; the version names the kernels' library and what was tuned, which prices depend on."""
        from rlflow.kernels.shared_library import digest

        found = self._stock.describe(CPU_PROVIDER)
        version = "+".join(filter(None, (str(found["version"]), digest()[:12], tuned_digest())))
        return {**found, "runtime": NAME, "version": version}

    def profile(
        self, source: bytes | str, options: RuntimeOptions, feeds: Mapping[str, Any], runs: int
    ) -> list[NodeTime]:
        """Of the model with kernels."""
        with_kernels, chosen_options = KernelChooser(self._stock, options).model(source, feeds)
        return self._stock.profile(with_kernels, chosen_options, feeds, runs)

    def optimized(self, source: bytes | str, options: RuntimeOptions) -> bytes:
        """As ONNX Runtime writes it, before any kernel takes a place: what has the same one gets the same kernels."""
        return self._stock.optimized(source, _stock_options(options))

    def write_optimized(self, source: bytes | str, options: RuntimeOptions, path: str) -> None:
        """As :meth:`optimized`."""
        self._stock.write_optimized(source, _stock_options(options), path)


class SessionWithKernels:
    """A session of ONNX Runtime; from the first inputs on, of the model with kernels."""

    first_run_counts = True

    def __init__(self, source: bytes | str, options: RuntimeOptions, stock: Runtime) -> None:
        self.options, self._source, self._stock = options, source, stock
        self._session = stock.open(source, _stock_options(options))
        self.io, self.load_seconds = self._session.io, self._session.load_seconds
        self._ready = options.level != "all"  # whoever asks for less optimisation wants the runtime's own kernels

    def run(self, feeds: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Outputs by name."""
        return self._with_kernels(feeds).run(feeds, outputs)

    def runner(self, feeds: Mapping[str, Any]) -> Callable[[], None]:
        """A call that runs the model once."""
        return self._with_kernels(feeds).runner(feeds)

    def _with_kernels(self, feeds: Mapping[str, Any]) -> Session:
        if not self._ready:
            source, options = KernelChooser(self._stock, self.options).model(self._source, feeds)
            if source is not self._source:
                self._session = self._stock.open(source, options)
            self._ready = True
        return self._session


@dataclass
class KernelChooser:
    """Chooses kernels for models; what it measures is kept. ``stock``: ONNX Runtime, in this process."""

    stock: Runtime
    options: RuntimeOptions

    def model(self, source: bytes | str, feeds: Mapping[str, Any]) -> tuple[bytes | str, RuntimeOptions]:
        """The runtime's graph of ``source`` with the fastest kernels, and how it is opened; where there is no place for
        one, ``source`` itself.
        """
        from rlflow.frontends.blocked import BlockedGraph, whole
        from rlflow.kernels.preparing import block_here
        from rlflow.kernels.shared_library import library_path

        stock = _stock_options(self.options)
        try:
            graph = BlockedGraph(self.stock.optimized(whole(source), stock), block_here(), stock.threads)
        except ModelError:  # too large for one piece: it stays as it is
            return source, stock
        self._library = replace(stock, library=library_path())
        attributes = self._attributes(graph, feeds) if graph.sites() else {}
        return (graph.with_kernels(attributes), self._library) if attributes else (source, stock)

    def profile(self, model: bytes | str, feeds: Mapping[str, Any], *, runs: int) -> list[NodeTime]:
        """The time of each node of a model with kernels."""
        return self.stock.profile(model, self._library, feeds, runs)

    def _attributes(self, graph: BlockedGraph, feeds: Mapping[str, Any]) -> dict[str, dict[str, int]]:
        shapes = {one.name: one.shape for one in self.profile(graph.with_kernels({}), feeds, runs=_SHAPE_RUNS)}
        sites = [site for site in graph.sites() if site.name in shapes]
        keys = {site.name: site_key(self._place, site.kind, site.sizes, shapes[site.name]) for site in sites}
        found = {name: known(one) for name, one in keys.items()}
        missing = [site for site in sites if found[site.name] is None]
        if missing:
            for name, one in self._measured(graph, missing, feeds).items():
                found[name] = one
                Ledger(FAST).keep(keys[name], one)
        chosen_here = {name: one.attributes for name, one in found.items() if one is not None}
        return {name: made for name, made in chosen_here.items() if made is not None}

    def _measured(self, graph: BlockedGraph, sites: Sequence[Site], feeds: Mapping[str, Any]) -> dict[str, FastKernel]:
        """Of each of these places the fastest kernel with its usual parameters."""
        try:
            times = measured(graph, self, feeds)
        except (RuntimeRefused, CostError):
            return {}
        choices = {one.node: one for one in chosen(sites, times, list(_all_algorithms()))}
        return {
            site.name: FastKernel(choices[site.name].algorithm, {}) if site.name in choices else FastKernel("", {})
            for site in sites
        }

    @property
    def _place(self) -> SitePlace:
        from rlflow.kernels.shared_library import digest

        found = self.stock.describe(CPU_PROVIDER)
        return SitePlace(str(found["device"]), str(found["version"]), self.options.threads, digest())


def _all_algorithms() -> Sequence[str]:
    from rlflow.kernels.algorithms import ALGORITHMS

    return tuple(ALGORITHMS)


def _stock_options(options: RuntimeOptions) -> RuntimeOptions:
    return replace(options, runtime="onnxruntime")
