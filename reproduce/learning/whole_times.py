"""Times of whole graphs from a table, and the clock that adds to it: the same figures whatever else the machine does.

``results/times.jsonl`` holds them by family and digest: the logarithm of the original's time over the graph's, as the
searches see it; and ``confirmed``, the same timed again afterwards, of those that seemed the best. A graph that the
table lacks is timed where there is a clock, and is an error where there is none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from rlflow.errors import RuntimeCrashed, RuntimeRefused, UsageError
from rlflow.frontends import graph_to_model
from rlflow.graph import Graph
from rlflow.price import CostModel, CostReport, FillReport, GraphTime
from rlflow.price.analytic import AnalyticCost
from rlflow.price.feed_specs import input_specs
from rlflow.runtime import RuntimeOptions, Worker, random_array

TABLE = Path(__file__).resolve().parent / "results" / "times.jsonl"
#: Sessions of the original, which lie in memory otherwise each; and of a graph at once.
ORIGINALS, BESIDE = 2, 2
#: How often a graph is timed. One that seems to gain the part CLOSE of the best of its family is timed so many times
#: more, because the best of many noisy figures is too good.
SESSIONS, AGAIN, CLOSE = 1, 3, 0.85
#: Rounds, each of which runs every session once, and their seconds.
ROUNDS, FEWEST, SECONDS = 60, 4, 1.2
#: Part of a time up to which differences count as none.
NOISE = 0.005

Row = dict[str, Any]


def gain_of(log_ratio: float | None) -> float:
    """Per cent of the original's time; without end below zero for a graph that the runtime refused."""
    return -math.inf if log_ratio is None else -100 * math.expm1(-log_ratio)


class OutOfTime(Exception):  # noqa: N818 - control flow, not an error
    """The seconds that may be spent on timing are over."""


class Clock:
    """Times graphs beside the one that their family begins with, on one thread. ``seconds``: until it may begin one."""

    def __init__(self, seconds: float) -> None:
        self._worker = Worker(RuntimeOptions(threads=1))
        self._deadline = time.monotonic() + seconds
        self._originals: list[Any] = []
        self._feeds: dict[str, np.ndarray] = {}

    def __enter__(self) -> Clock:
        return self

    def __exit__(self, *_: type[BaseException] | TracebackType | BaseException | None) -> None:
        self._worker.close()

    def begin(self, graph: Graph) -> None:
        """The original of a family, with stand-ins for weights and inputs."""
        for handle in self._originals:
            self._worker.unload(handle)
        rng = np.random.default_rng(0)
        self._feeds = {name: random_array(spec, rng) for name, spec in input_specs(graph, {}).items()}
        model = graph_to_model(graph).SerializeToString()
        self._originals = [self._worker.load(model) for _ in range(ORIGINALS)]

    def ratios(self, graph: Graph, sessions: int, seed: int) -> list[float]:
        """Each time, the median logarithm of the original's time over the graph's, of ORIGINALS and BESIDE sessions.

        Raises :class:`OutOfTime`; RuntimeRefused where the runtime will not run the graph.
        """
        if time.monotonic() > self._deadline:
            raise OutOfTime
        model, clock = graph_to_model(graph).SerializeToString(), self._worker.options.effective_clock
        found = []
        for session in range(sessions):
            mine = [self._worker.load(model) for _ in range(BESIDE)]
            try:
                samples = self._worker.time_interleaved(
                    [*self._originals, *mine], self._feeds, rounds=ROUNDS, seconds=SECONDS, min_rounds=FEWEST,
                    seed=seed + session,
                ).by(clock)  # fmt: skip
            finally:
                for handle in mine:
                    self._worker.unload(handle)
            logs = np.log(samples)
            found.append(float(np.median(logs[:, :ORIGINALS].mean(axis=1) - logs[:, ORIGINALS:].mean(axis=1))))
        return found


class TimedWhole(CostModel):
    """Times of whole graphs of one family, in parts of the original's, which is 1 ms by definition. ``rows``: of the
    table; ``clock``: what times the rest. ``asked``: gains in per cent, and ``graphs``: by digest, in the order of
    asking; ``fresh``: rows that the clock added.
    """

    name = "timed whole"
    measures = True
    whole = True

    def __init__(self, rows: Iterable[Row], family: str, clock: Clock | None = None) -> None:
        self._known = {row["digest"]: row for row in rows if row["kind"] == "time" and row["family"] == family}
        self._family, self._clock = family, clock
        self._ranker = AnalyticCost()
        self._times: dict[str, GraphTime] = {}
        self.asked: list[float] = []
        self.graphs: dict[str, Graph] = {}
        self.fresh: list[Row] = []

    @property
    def pricer(self) -> Any:
        """The roofline that ranks graphs before they are timed."""
        return self._ranker.pricer

    @property
    def relative_noise(self) -> float:
        return NOISE

    def graph_time(self, digest: str) -> GraphTime | None:
        return self._times.get(digest)

    def cost(self, graph: Graph) -> CostReport:
        """The time of ``graph``."""
        self.fill([graph])
        return CostReport(self._times[graph.digest].ms or 0.0, (), "end-to-end", "a recorded table")

    def fill(
        self,
        graphs: Iterable[Graph],
        *,
        limit: int | None = None,
        stop: Callable[[], bool] | None = None,
        seconds: float | None = None,
        tell: Callable[[Any], None] | None = None,
    ) -> FillReport:
        """Look graphs up, or time them; the first one is the original, which costs nothing.

        Raises :class:`UsageError` where one is not in the table and there is no clock.
        """
        waiting = {graph.digest: graph for graph in graphs if graph.digest not in self._times}
        allowed = list(waiting.values())[:limit]
        for graph in allowed:
            if not self._times:
                self._times[graph.digest] = GraphTime(1.0)
                continue
            row = self._known.get(graph.digest) or self._timed(graph)
            ratio = row["log_ratio"]
            self._times[graph.digest] = GraphTime(None if ratio is None else math.exp(-ratio), refusal=row["refusal"])
            self.asked.append(gain_of(ratio))
            self.graphs[graph.digest] = graph
        return FillReport(measured=len(allowed), remaining=len(waiting) - len(allowed))

    def _timed(self, graph: Graph) -> Row:
        if self._clock is None:
            raise UsageError(
                f"A graph of {self._family} is not among the recorded times; "
                "`python reproduce/learning/dear.py record` times it."
            )
        ratios: list[float] = []
        why = None
        try:
            ratios = self._clock.ratios(graph, SESSIONS, 0)
            if np.median(ratios) > CLOSE * max((row["log_ratio"] or 0.0 for row in self._known.values()), default=0.0):
                ratios += self._clock.ratios(graph, AGAIN, SESSIONS)
        except (RuntimeRefused, RuntimeCrashed) as error:
            why = str(error)
        row = {
            "kind": "time", "family": self._family, "digest": graph.digest,
            "log_ratio": None if why else float(np.median(ratios)), "sessions": len(ratios), "refusal": why,
        }  # fmt: skip
        self._known[graph.digest] = row
        self.fresh.append(row)
        return row
