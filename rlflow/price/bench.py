"""The clock for regions: a runtime in a process of its own, and the state of the caches that models are timed in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rlflow.price.allowance import HASTY_REPEATS
from rlflow.price.database import PriceContext
from rlflow.price.pace import reference
from rlflow.price.repeats import Item, fastest, repeated
from rlflow.runtime import Measurement, RuntimeOptions, Worker

if TYPE_CHECKING:
    from rlflow.graph import Graph

#: The runtime's level of optimisation.
LEVEL = "all"
#: Part of the key of every kept price; raise it when the way of measuring changes.
METHOD = "8"
#: The opset of regions, unless an operator needs a newer one: see :mod:`rlflow.frontends.lowering`.
OPSET = 18
#: The same, of what only runs of several threads feel.
THREADS_METHOD = "2"
#: Memory that is walked through before each sample: more than a second-level cache holds, less than a shared one.
FLUSH_MB = 4.0
#: The same for a model that streams more weights than that (:func:`rlflow.price.partition.streams`): as much as a
#: shared cache holds. (On a decoder step, 64 gave the times of a profile of the whole model, but less steadily; 16
#: ranked worse.)
STREAMING_FLUSH_MB = 32.0


def mega(megabytes: float) -> int:
    """Bytes of so many megabytes."""
    return int(megabytes * (1 << 20))


class Caches(NamedTuple):
    """What a region finds in the caches: ``flush_bytes`` are walked through before each sample (0: what it reads stays
    there); ``streams``: the model mostly reads weights.
    """

    flush_bytes: int
    streams: bool = False

    @property
    def far(self) -> bool:
        """Whether regions are measured with empty caches."""
        return self.streams and self.flush_bytes >= mega(STREAMING_FLUSH_MB)

    @property
    def paced(self) -> bool:
        """Whether references are timed beside long regions: where regions are timed cold, but not from memory."""
        return self.flush_bytes > 0 and not self.far


class Bench:
    """Times models alone in the worker of a runtime: that which was ``given``, else one of its own.

    ``repeats`` samples of ``min_time`` seconds make a time; ``time_limit`` seconds end a model that hangs.
    """

    def __init__(
        self,
        options: RuntimeOptions,
        given: Worker | None = None,
        *,
        caches: Caches,
        repeats: int = 9,
        min_time: float = 2e-4,
        time_limit: float = 30.0,
    ) -> None:
        self.options = options if given is None else given.options
        self.caches = caches
        self.repeats, self.min_time, self.time_limit = repeats, min_time, time_limit
        self._given = given
        self._own: Worker | None = None

    @property
    def worker(self) -> Worker:
        """The worker process that measures."""
        if self._given is not None:
            return self._given
        if self._own is None:
            self._own = Worker(self.options)
        return self._own

    def close(self) -> None:
        """End the worker process, where it is this object's own."""
        if self._own is not None:
            self._own.close()
            self._own = None

    # --- where it is ------------------------------------------------------------------------------------------------

    @functools.cached_property
    def description(self) -> Mapping[str, Any]:
        """What the worker says of itself."""
        return dict(self.worker.describe())

    @functools.cached_property
    def place(self) -> PriceContext:
        """Where times hold."""
        return PriceContext.of(self.description, LEVEL)

    def clock_state(self) -> str:
        """Which clock it is, and what the system reports of its state."""
        state = self.description.get("clock_state", "")
        return f"{self.options.effective_clock} time{'; ' if state else ''}{state}"

    @property
    def _method(self) -> str:
        return METHOD if self.options.threads == 1 else f"{METHOD}-{THREADS_METHOD}"

    def kept_as(self, key: str, cold: bool = True) -> str:
        """The name in the database of what was timed so."""
        usual = not cold or self.caches.flush_bytes == mega(FLUSH_MB)
        return f"{self._method}:{key}" if usual else f"{self._method}:flush-{self.caches.flush_bytes}:{key}"

    def kept_so(self, name: str) -> bool:
        """Whether a name in the database is of something that was timed as now."""
        usual, own = f"{self._method}:flush-", self.kept_as("")
        return name.startswith(own) and (own.startswith(usual) or not name.startswith(usual))

    # --- timing -----------------------------------------------------------------------------------------------------

    def timed(
        self,
        items: Sequence[Item],
        cold: bool,
        sessions: int | None = None,
        hasty: bool = False,
        over: Callable[[], bool] = lambda: False,
    ) -> dict[str, Measurement | str]:
        """The times of sessions that agree, or the median of ``sessions`` of them; ``hasty``: the fastest of a few
        short ones. Where ``over`` says yes, no further sessions are opened for those that do not agree yet.
        """
        if not items:
            return {}
        repeats = HASTY_REPEATS if hasty else self.repeats
        count = 1 if hasty or sessions is None else sessions

        def once(some: Sequence[Item], beside: bytes | None = None) -> dict[str, Measurement | str]:
            return self.worker.measure_many(
                some,
                level=LEVEL,
                repeats=repeats * count,
                min_time=self.min_time,
                flush_bytes=self.caches.flush_bytes if cold else 0,
                sessions=count,
                time_limit=self.time_limit,
                reference=beside,
            )

        if hasty and not (cold and self.caches.far):
            return fastest(once, items, over)
        if sessions is not None or hasty:
            return once(items)
        paced = functools.partial(once, beside=serialized(reference())) if cold and self.caches.paced else None
        return repeated(once, items, paced, over)

    def changes_layout(self, graph: Graph) -> bool:
        """Whether the runtime turns this graph to its blocked layout."""
        return b"ReorderInput" in self.worker.optimized(serialized(graph), level=LEVEL)


def serialized(graph: Graph) -> bytes:
    """As ONNX, for the opset that results are written for where newer ones are slower."""
    from rlflow.frontends import graph_to_model, operator_opset

    needed = (operator_opset(graph.op(node)) for node in graph.order())
    return graph_to_model(graph, opset=max(OPSET, *(one or 0 for one in needed))).SerializeToString()
