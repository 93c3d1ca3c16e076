"""Prices without a clock: a roofline over fused regions (Williams, Waterman and Patterson 2009).

A region takes the larger of its compute time and its memory time, plus an overhead. What a region is follows from the
"generic" fusion table: pointwise work behind a product or behind other pointwise work costs no extra pass over memory,
decomposed normalisations and activations are recognised, a renamed tensor costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from rlflow._core import Pricer
from rlflow.price import regions
from rlflow.price.allowance import PricingProgress
from rlflow.price.protocol import CostModel, CostReport, FillReport, RegionCost

if TYPE_CHECKING:
    from rlflow.graph import Graph

#: One core of a generic server CPU with 256-bit vectors: 2.5 GHz x 2 FMA units x 8 lanes x 2 operations = 80 GFLOP/s at
#: most, of which a good matrix product reaches three quarters.
GFLOPS = 60.0
#: Pointwise, reduction and normalisation work, which mixes in divisions, exponentials and shuffles.
VECTOR_GFLOPS = 6.0
#: What one core draws from memory.
GBPS = 12.0
#: Dispatch of a kernel, and of one that only renames a tensor, in microseconds.
OVERHEAD_US = 2.0
VIEW_US = 0.5


class AnalyticCost(CostModel):
    """Deterministic prices on any machine: the same graph, the same figure, whatever runs it.

    ``gflops``, ``vector_gflops``: 1e9 operations per second in products, and elsewhere; ``gbps``: 1e9 bytes per second;
    ``overhead_us``, ``view_us``: microseconds per region. ``threads`` is taken for uniformity and changes nothing: the
    figures describe the whole device. ``dims``: values of symbolic dimensions; others count as 1.
    Raises UsageError for figures that make no sense.
    """

    name = "analytic"

    def __init__(
        self,
        *,
        gflops: float = GFLOPS,
        vector_gflops: float = VECTOR_GFLOPS,
        gbps: float = GBPS,
        overhead_us: float = OVERHEAD_US,
        view_us: float = VIEW_US,
        fusion: str = "generic",
        threads: int = 1,
        dims: Mapping[str, int] | None = None,
    ) -> None:
        self.threads = threads
        self.dims = dict(dims or {})
        self._pricer = Pricer.analytic(
            gflops=gflops,
            vector_gflops=vector_gflops,
            gbps=gbps,
            overhead_us=overhead_us,
            view_us=view_us,
            fusion=fusion,
        )
        self._pricer.bind(self.dims)
        self.device = (
            f"roofline of {gflops:g} GFLOP/s ({vector_gflops:g} outside products), {gbps:g} GB/s, "
            f"{overhead_us:g} us per kernel"
        )

    def bind(self, dims: Mapping[str, int]) -> None:
        super().bind(dims)
        self._pricer.bind(dict(self.dims))

    @property
    def pricer(self) -> Pricer:
        """The native pricer."""
        return self._pricer

    def cost(self, graph: Graph) -> CostReport:
        """The price of ``graph`` in milliseconds on the described device."""
        summary = self._pricer.summary(graph)
        rows: list[RegionCost] = []
        opaque: list[str] = []
        for region in self._pricer.regions(graph):
            operators = regions.operators(graph, region)
            note = "carried opaquely: counted as zero" if region.opaque else None
            if region.opaque:
                opaque.extend(operators)
            rows.append(
                RegionCost(region.signature, region.kind, operators, region.ms, region.flops, region.bytes, note=note)
            )
        return CostReport(
            total_ms=summary["ms"],
            per_region=tuple(rows),
            source="analytic",
            device=self.device,
            unpriced=tuple(dict.fromkeys(opaque)),
            weight_bytes=summary["weight_bytes"],
        )

    def fill(
        self,
        graphs: Iterable[Graph],
        *,
        limit: int | None = None,
        stop: Callable[[], bool] | None = None,
        seconds: float | None = None,
        tell: Callable[[PricingProgress], None] | None = None,
    ) -> FillReport:
        """Nothing is ever missing."""
        return FillReport()
