"""What a problem needs to know about prices: which are known, how the missing ones are measured, what they may be until
then.

Thousands of candidates bring regions that nobody has measured yet, and measuring takes milliseconds each. So a
candidate is *estimated* when it is enumerated and *measured* when it is opened: the number of measurements follows the
number of opened graphs, not of candidates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rlflow.price import CostModel, Price

#: Roofline of the estimates; only the proportions matter, because they are scaled by what was measured.
_FLOPS_PER_MS, _BYTES_PER_MS, _OVERHEAD_MS = 60e6, 12e6, 0.002
#: So many measured regions of a kind and of like size say what others may take: small ones cost their start and say
#: nothing of large ones. Of fewer the best is believed, because where a model is one slow operator, all that could
#: replace it would look as slow, and never be measured. What replaces the best may take so much of its time: products
#: run at twice the rate of Einsum.
FEW, LIKE, HOPED = 5, 8.0, 0.5
#: A region that the runtime refuses must never look cheap; the search keeps away from a graph this dear.
REFUSED_MS = 1e6

#: Hears a :class:`rlflow.price.PricingProgress` while regions are timed.
Tell = Callable[[Any], None]


class Prices:
    """Prices that are all known: an analytic cost model, or a state that prices itself."""

    #: Whether prices may be missing, so that opening a graph can mean measuring.
    measures: bool = False
    #: Whether a region at a time is measured, so that a graph that resembles a known one is cheap to price.
    by_region: bool = False
    #: Regions of the starting graph whose prices are estimates, because the time did not reach for them.
    guessed: int = 0

    def __init__(self, pricer: Any = None) -> None:
        self.pricer = pricer

    def noise_ms(self, cost: float) -> float:
        """Differences of costs up to this many milliseconds count as none."""
        return 1e-9 * cost

    @staticmethod
    def of(cost_model: CostModel) -> Prices:
        """For a cost model: measured lazily where a clock decides."""
        if cost_model.whole:
            return GraphPrices(cost_model)
        return MeasuredPrices(cost_model) if cost_model.measures else Prices(cost_model.pricer)

    def cost(self, state: Any) -> float:
        """The cost of an opened state in milliseconds."""
        return float(state.cost)

    def settle_root(
        self,
        graph: Any,
        stop: Callable[[], bool],
        limit: int | None = None,
        seconds: float | None = None,
        tell: Tell | None = None,
    ) -> int:
        """Make every price of the starting graph known, by at most ``limit`` measurements and in about so many
        ``seconds``; the number made. ``tell`` hears how far it is.
        """
        return 0

    def deltas(self, state: Any, raw: Any) -> tuple[np.ndarray, np.ndarray]:
        """For each of a state's moves: what it changes in ms (an estimate where a price is missing), and whether that
        is exact.
        """
        return np.asarray(raw.delta_ms, dtype=float), np.ones(len(raw), dtype=bool)

    def appraised(self, state: Any) -> tuple[float, bool]:
        """What a state costs in ms (an estimate where a price is missing), and whether that is exact."""
        return self.cost(state), True

    def measure(self, graphs: Sequence[Any], limit: int | None, stop: Callable[[], bool]) -> int:
        """Measure the missing prices of ``graphs``, at most ``limit``; the number of measurements made."""
        return 0

    def is_settled(self, graph: Any) -> bool:
        """Whether every price of ``graph`` is known."""
        return True

    def settles(self, raw: Any, i: int) -> bool:
        """Whether every price of the graph that move ``i`` of a settled one leads to is known already; where that
        cannot be told without the graph, no.
        """
        return not self.measures


class MeasuredPrices(Prices):
    """Prices of a cost model that measures."""

    measures = True
    by_region = True

    def __init__(self, model: CostModel) -> None:
        super().__init__(model.pricer)
        self._model = model
        self._estimates: dict[str, float] = {}
        self._ratios: dict[str, list[tuple[float, float]]] = defaultdict(list)  # by kind: roofline, time / roofline
        self._learnt: set[str] = set()
        self._refused: set[str] = set()

    def noise_ms(self, cost: float) -> float:
        """A part of the cost, for small models; for large ones what the clock cannot tell.

        Not more: the way of a row selection through a transformer layer consists of sixty gains of a few microseconds.
        """
        return min(1e-4 * cost, 1e-3)

    def settle_root(
        self,
        graph: Any,
        stop: Callable[[], bool],
        limit: int | None = None,
        seconds: float | None = None,
        tell: Tell | None = None,
    ) -> int:
        """As above; what the runtime will not run alone gets an estimate, because both sides of every comparison may
        contain it. So does what the limit leaves out; the search is over then. And what the time does not reach for, in
        proportion to the roofline.
        """
        report = self._model.fill([graph], limit=limit, stop=stop, seconds=seconds, tell=tell)
        self._learn(graph)
        if report.remaining:
            missing = self.pricer.regions(graph, unpriced_only=True)
            self.guessed = len(missing)
            self.pricer.set_prices([region.signature for region in missing], [self._estimate(r) for r in missing])
        self._replace_refused(graph, self._estimate)
        return int(report.measured)

    def deltas(self, state: Any, raw: Any) -> tuple[np.ndarray, np.ndarray]:
        delta = np.array(raw.delta_ms, dtype=float)
        exact = np.asarray(raw.unknown) == 0
        for i in np.flatnonzero(~exact).tolist():
            signatures = raw.unknown_signatures(i)
            if any(signature not in self._estimates for signature in signatures):
                self._guess(state.child(i))
            delta[i] += sum(self._estimates.get(signature, 0.0) for signature in signatures)
        return delta, exact

    def appraised(self, state: Any) -> tuple[float, bool]:
        missing = self.pricer.regions(state.graph, unpriced_only=True)
        self._guess(state.graph)
        return float(state.cost) + sum(self._estimates[region.signature] for region in missing), not missing

    def measure(self, graphs: Sequence[Any], limit: int | None, stop: Callable[[], bool]) -> int:
        waiting = [graph for graph in graphs if not self.is_settled(graph)]
        if not waiting or limit == 0:
            return 0
        report = self._model.fill(waiting, limit=limit, stop=stop)
        for graph in waiting:
            self._learn(graph)
            self._replace_refused(graph, lambda region: REFUSED_MS)
        return int(report.measured)

    def is_settled(self, graph: Any) -> bool:
        return self.pricer.price(graph)[1] == 0

    def settles(self, raw: Any, i: int) -> bool:
        singles = getattr(raw, "singles", raw)
        return i < len(singles) and not singles.unknown[i]

    # --- estimates ----------------------------------------------------------------------------------------------------

    def _guess(self, graph: Any) -> None:
        """Estimate every region of ``graph`` that has no price."""
        for region in self.pricer.regions(graph, unpriced_only=True):
            if region.signature not in self._estimates:
                self._estimates[region.signature] = self._hope(region)

    def _hope(self, region: Any) -> float:
        """What a region that a rewrite would bring may take: an estimate, or what is hoped where little is known."""
        roofline = _roofline(region)
        known = self._ratios.get(region.kind, [])
        ratios = [ratio for other, ratio in known if roofline / LIKE <= other <= roofline * LIKE]
        return roofline * (_median(ratios) if len(ratios) >= FEW else HOPED * min([1.0, *ratios]))

    def _estimate(self, region: Any) -> float:
        known = self._ratios.get(region.kind) or [pair for pairs in self._ratios.values() for pair in pairs]
        return _roofline(region) * _median([ratio for _, ratio in known] or [1.0])

    def _learn(self, graph: Any) -> None:
        """How measured regions of each kind compare with the roofline."""
        for region in self.pricer.regions(graph):
            if region.ms and not region.view and region.signature not in self._learnt:
                self._learnt.add(region.signature)
                roofline = _roofline(region)
                self._ratios[region.kind].append((roofline, region.ms / roofline))

    def _replace_refused(self, graph: Any, price: Callable[[Any], float]) -> None:
        """The cost model counts what the runtime refuses as zero; a search would go and look for such regions."""
        found = {
            region.signature: region
            for region in self.pricer.regions(graph)
            if region.signature in self._model.refusals
        }
        fresh = [signature for signature in found if signature not in self._refused]
        if fresh:
            self._refused.update(fresh)
            self.pricer.set_prices(fresh, np.array([price(found[signature]) for signature in fresh]))


class GraphPrices(Prices):
    """Prices of whole graphs (``--cost end-to-end``): candidates are ranked by the model's pricer, scaled to the clock;
    what is opened is timed.
    """

    measures = True

    def __init__(self, model: CostModel) -> None:
        super().__init__(model.pricer)
        self._model = model
        self._scale = 1.0

    def noise_ms(self, cost: float) -> float:
        """What the clock cannot tell apart."""
        return self._model.relative_noise * cost

    def cost(self, state: Any) -> float:
        """The measured time; that of a graph which the runtime refuses keeps the search away from it."""
        ms = self._ms(state.graph.digest)
        return REFUSED_MS if ms is None else ms

    def _ms(self, digest: str) -> float | None:
        found = self._model.graph_time(digest)
        return None if found is None else found.ms

    def settle_root(
        self,
        graph: Any,
        stop: Callable[[], bool],
        limit: int | None = None,
        seconds: float | None = None,
        tell: Tell | None = None,
    ) -> int:
        report = self._model.fill([graph], tell=tell)
        ranked = self.pricer.price(graph)[0]
        if ranked > 0:
            self._scale = (self._ms(graph.digest) or 0.0) / ranked
        return int(report.measured)

    def deltas(self, state: Any, raw: Any) -> tuple[np.ndarray, np.ndarray]:
        delta = np.array(raw.delta_ms, dtype=float) * self._scale
        exact = np.zeros(len(raw), dtype=bool)
        here = self.cost(state)
        for i, digest in enumerate(np.ascontiguousarray(raw.digest)):
            ms = self._ms(digest.tobytes().hex())
            if ms is not None:
                delta[i], exact[i] = ms - here, True
        return delta, exact

    def timed_regions(self) -> Sequence[Price]:
        """What was timed before, region by region, where these graphs are timed."""
        return self._model.timed_regions()

    def channel_block(self) -> int | None:
        """Channels per block of the runtime's layout, 0 where it has none; ``None`` where nobody knows."""
        return self._model.channel_block()

    def appraised(self, state: Any) -> tuple[float, bool]:
        ms = self._ms(state.graph.digest)
        return (ms, True) if ms is not None else (self.pricer.price(state.graph)[0] * self._scale, False)

    def measure(self, graphs: Sequence[Any], limit: int | None, stop: Callable[[], bool]) -> int:
        return int(self._model.fill(graphs, limit=limit, stop=stop).measured)

    def is_settled(self, graph: Any) -> bool:
        return self._model.graph_time(graph.digest) is not None


def _median(ratios: Sequence[float]) -> float:
    import statistics  # it takes as long to import as a search on a small model

    return statistics.median(ratios)


def _roofline(region: Any) -> float:
    return max(region.flops / _FLOPS_PER_MS, region.bytes / _BYTES_PER_MS) + _OVERHEAD_MS
