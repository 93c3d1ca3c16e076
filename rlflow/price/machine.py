"""What is known about a machine apart from its kernels: what a runtime adds to them, and the best pace."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlflow.errors import CostError
from rlflow.price import calibration
from rlflow.price.bench import LEVEL, Bench
from rlflow.price.calibration import Calibration
from rlflow.price.database import Price
from rlflow.price.lookup import Lookup
from rlflow.price.pace import Pace, at_pace, pace_of
from rlflow.runtime import Measurement

if TYPE_CHECKING:
    from rlflow.graph import Graph
    from rlflow.price.repeats import Item

_COMPUTING, _WALKING = "pace-computing", "pace-walking"


class Machine:
    """Calibration and pace, measured when they are first asked for and kept like prices.

    ``blocked``: the fusion table describes the runtime's blocked layout, so that changes of layout are told apart.
    """

    def __init__(self, bench: Bench, lookup: Lookup, blocked: bool) -> None:
        self._bench, self._lookup, self._blocked = bench, lookup, blocked
        self._calibration: Calibration | None = None
        self._pace: Pace | None = None
        self._hurry_at = math.inf

    def hurry(self, after: float = 0.0) -> None:
        """Learn by fewer and shorter probes in so many seconds from now on; nothing of that is kept."""
        self._hurry_at = time.perf_counter() + after

    @property
    def _hurried(self) -> bool:
        return time.perf_counter() >= self._hurry_at

    def forget(self) -> None:
        """The caches are in another state: what was learnt in the last one does not count."""
        self._calibration = self._pace = None

    # --- what the runtime adds --------------------------------------------------------------------------------------

    @functools.cached_property
    def block(self) -> int:
        """Channels per block of the runtime's layout, or 0."""
        return calibration.channel_block(self._bench.changes_layout) if self._blocked else 0

    @property
    def calibration(self) -> Calibration:
        """Raises :class:`CostError` where the runtime refuses a probe."""
        if self._calibration is None:
            self._calibration = self.calibrated()
        return self._calibration

    def calibrated(self) -> Calibration:
        """The calibration, measured where it is not kept."""
        graphs = calibration.probes(self.block)
        ms = {**self._probed(graphs, cold=False), **self._probed(graphs, cold=True)}
        return calibration.calibrate(ms, self.block)

    def view_ms(self) -> float:
        """A renamed tensor."""
        return calibration.view_ms(self._probed(calibration.probes(self.block), cold=False))

    def _probed(self, probes: Mapping[str, Graph], cold: bool) -> dict[str, float]:
        """The times of the cold or of the other ones of the probes."""
        graphs = {name: graph for name, graph in probes.items() if calibration.is_cold(name) == cold}
        wanted = [*graphs, calibration.OVERHEAD] if cold else list(graphs)
        kept = self._lookup.find(map(_key, wanted), cold)
        if any(_key(name) not in kept or kept[_key(name)].ms is None for name in wanted):
            kept = self._probed_now(graphs, cold)
        for key, price in kept.items():
            self._lookup.go_by(key, price, cold)
        return {name: kept[_key(name)].ms or 0.0 for name in wanted if _key(name) in kept}

    def _probed_now(self, graphs: Mapping[str, Graph], cold: bool) -> dict[str, Price]:
        """The times of probes by their keys, measured and kept; where time is short, of fewer, and not kept."""
        found = self._timed_probes(graphs)
        if cold:
            self.settle_pace(found.values())
            found = {name: at_pace(one, self._pace) for name, one in found.items()}
            flush, hurried = self._bench.caches.flush_bytes, self._hurried
            found[calibration.OVERHEAD] = calibration.overhead(self._bench.worker, flush, LEVEL, hurried)
        kept = {_key(name): Price(one.ms, one.spread_ms, one.samples) for name, one in found.items()}
        if self._hurried:
            self._lookup.hasty.update(self._bench.kept_as(key, cold) for key in kept)
        else:
            self._lookup.keep(kept, cold)
        return kept

    def _timed_probes(self, graphs: Mapping[str, Graph]) -> dict[str, Measurement]:
        """The times of probes; of fewer and in haste where time is short, or where one did not end in its time."""
        if not self._hurried:
            try:
                return calibration.measured(graphs, self.timed_by_haste)
            except CostError:  # beside other programs a large one can take longer than a worker may
                self.hurry()
        return calibration.measured(calibration.brief(graphs), self.timed_by_haste)

    def timed_by_haste(self, items: Sequence[Item], **how: Any) -> Mapping[str, Measurement | str]:
        """As :meth:`Bench.timed`, in haste where the time for learning is over."""
        return self._bench.timed(items, hasty=self._hurried, **how)

    # --- the pace ---------------------------------------------------------------------------------------------------

    @property
    def pace(self) -> Pace | None:
        """The best pace of the machine, if this object or an earlier one found it out."""
        if self._pace is None:
            kept = self._lookup.find([_COMPUTING, _WALKING])
            found = [kept[key].ms for key in (_COMPUTING, _WALKING) if key in kept]
            if len(found) == 2 and all(found):
                self._pace = Pace(*(ms or 0.0 for ms in found))
        return self._pace

    def settle_pace(self, timed: Iterable[Measurement | str]) -> None:
        """The pace while these were timed is the best one, if none is known."""
        if self.pace is not None:
            return
        self._pace = pace_of(one for one in timed if isinstance(one, Measurement))
        if self._pace is not None:
            kept = zip((_COMPUTING, _WALKING), self._pace, strict=True)
            self._lookup.keep({key: Price(ms, 0.0, 1) for key, ms in kept})

    def at_pace(self, one: Measurement) -> Measurement:
        """What this took, at the best pace."""
        return at_pace(one, self._pace)


def _key(probe: str) -> str:
    return f"probe:{probe}"
