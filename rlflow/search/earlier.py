"""Finished searches in the ledger: the same search over the same prices finds the same, so it is not made again.

Kept is what ended by itself (everything was tried, or the strategy's own criterion said so), never what a budget or
Ctrl-C cut short: with the prices that it left behind a second run would come further. It counts while every price that
it went by is in the database as it was; the graphs are replayed from their traces and priced again.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from rlflow.errors import UsageError
from rlflow.ledger import Kind, Ledger, key, now
from rlflow.search.budget import StopReason
from rlflow.search.problem import ROUNDING, Problem
from rlflow.search.result import Counts, CurvePoint, Result, TraceStep
from rlflow.search.strategies import Strategy, describe
from rlflow.search.trace import read_trace

#: Folders of the package that decide what a search finds.
_DECIDING = ("agents", "price", "rewrite", "search")


@dataclass(frozen=True)
class KeptSearch:
    """``traces`` and ``costs`` (milliseconds) of the best graph and the runners-up; ``prices``: milliseconds by key, of
    every region that was priced (``None``: refused); ``ended_at`` an ISO date in UTC.
    """

    traces: Sequence[tuple[TraceStep, ...]]
    costs: Sequence[float]
    cost_before_ms: float
    stop_reason: str
    counts: Counts
    curve: Sequence[CurvePoint]
    seconds: float
    prices: Mapping[str, float | None]
    ended_at: str

    @classmethod
    def of(cls, result: Result, prices: Mapping[str, float | None], ended_at: str) -> KeptSearch | None:
        """What is worth keeping of a result; ``None`` for a search that was cut short or keeps no traces."""
        found = [result.best, *result.runners_up]
        traces = [one.trace for one in found if one.trace is not None]
        if result.stop_reason not in (StopReason.CONVERGED, StopReason.EXHAUSTED) or len(traces) < len(found):
            return None
        return cls(
            traces, [one.cost_ms for one in found], result.cost_before_ms, str(result.stop_reason), result.counts,
            list(result.curve), result.seconds, dict(prices), ended_at,
        )  # fmt: skip

    def plain(self) -> dict[str, Any]:
        """As it is kept."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**plain, "traces": [[step.to_dict() for step in trace] for trace in self.traces]}

    @classmethod
    def of_plain(cls, plain: dict[str, Any]) -> KeptSearch:
        """What :meth:`plain` gave; raises an error for anything else."""
        plain["traces"] = [read_trace(trace) for trace in plain["traces"]]
        plain["counts"] = Counts(*plain["counts"])
        plain["curve"] = [CurvePoint(*point) for point in plain["curve"]]
        StopReason(plain["stop_reason"])
        plain["costs"] = [float(cost) for cost in plain["costs"]]
        return cls(**plain)

    def repeated(self, problem: Problem, strategy: Strategy) -> Result | None:
        """The result again, for a ``problem`` that was not searched yet; ``None`` where a graph is not what it was."""
        try:
            root = problem.root()
            nodes = [problem.replayed(trace) for trace in self.traces]
        except UsageError:
            return None
        costs = [(root.cost, self.cost_before_ms), *((n.cost, ms) for n, ms in zip(nodes, self.costs, strict=True))]
        if any(abs(now - then) > ROUNDING * abs(then) for now, then in costs):
            return None
        found = problem.result(StopReason(self.stop_reason), describe(strategy))
        counts = self.counts._replace(measurements=problem.meter.measurements)  # a clock was asked today, or not
        return replace(found, counts=counts, curve=self.curve)

    def sentence(self) -> str:
        """What a report says about it."""
        return (
            f"The search is that of {self.ended_at[:10]} ({self.counts.expansions} expansions in {self.seconds:.1f} s, "
            f"{self.stop_reason}): model, rules, options and all prices are the same. --fresh searches again."
        )


SEARCHES = Kind("searches", 1, KeptSearch.plain, KeptSearch.of_plain)


def repeatable(strategy: Strategy) -> bool:
    """Whether the specification says all that a search depends on: not where it names a file, whose content may change,
    writes one, or trains by the clock.
    """
    return not any(f"{option}=" in describe(strategy) for option in ("checkpoint", "egraph_out", "train"))


class PricedBy(Protocol):
    """What is asked of a cost model: where its prices hold, which it went by, and whether it has some still."""

    @property
    def place(self) -> Any: ...

    def used(self) -> Mapping[str, float | None] | None: ...

    def still_holds(self, used: Mapping[str, float | None]) -> bool: ...


class EarlierSearches:
    """The kept searches of one strategy in one place. ``parts``: what else a result depends on (digests of model and
    rules, budget, seed). ``fresh``: none is recalled.
    """

    def __init__(
        self,
        prices: PricedBy,
        strategy: Strategy,
        parts: Iterable[object],
        fresh: bool = False,
        folder: Path | None = None,
    ) -> None:
        self._prices, self._strategy = prices, strategy
        self._ledger = Ledger(SEARCHES, folder, fresh)
        self._key = key(_program(), describe(strategy), prices.place, *parts)

    def recall(self, problem: Problem) -> tuple[Result, str] | None:
        """What the same search found by the same prices, and a sentence that says so."""
        kept = self._ledger.recall(self._key)
        if kept is None or not self._prices.still_holds(kept.prices):
            return None
        result = kept.repeated(problem, self._strategy)
        return None if result is None else (result, kept.sentence())

    def keep(self, result: Result) -> None:
        """For the next run, if the search came to its own end and by no estimates."""
        used = self._prices.used()
        kept = None if used is None else KeptSearch.of(result, used, now())
        if kept is not None:
            self._ledger.keep(self._key, kept, kept.ended_at, **vars(self._prices.place))


@functools.cache
def _program() -> bytes:
    """A digest of the code (and the trained weights) that decide what a search finds."""
    package = Path(__file__).resolve().parents[1]
    hasher = hashlib.blake2b(digest_size=16)
    files = [file for name in _DECIDING for file in (package / name).rglob("*") if file.suffix in (".py", ".npz")]
    for file in sorted([*files, *package.glob("_core*.so"), *package.glob("_core*.pyd")]):
        hasher.update(file.read_bytes())
    return hasher.digest()
