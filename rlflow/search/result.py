"""What a search returns: the best graph it visited, how it got there, and what that took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlflow.search.budget import StopReason


class TraceStep(NamedTuple):
    """One rewrite, written down so that it replays anywhere: rule name, match as ordinals in canonical order."""

    rule: str
    match: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"rule": self.rule, "match": list(self.match)}


class CurvePoint(NamedTuple):
    """The moment at which a better graph was found, and its cost in milliseconds."""

    seconds: float
    candidates: int
    expansions: int
    measurements: int
    cost_ms: float


class Counts(NamedTuple):
    """Children priced, nodes opened, regions really measured, and candidates that were refused for their folded
    weights' size.
    """

    candidates: int
    expansions: int
    measurements: int
    overweight: int = 0


class Visited(NamedTuple):
    """A graph that the search visited, with an exact cost in milliseconds; ``trace`` is ``None`` where the strategy
    keeps none.
    """

    graph: Any
    digest: str
    cost_ms: float
    trace: tuple[TraceStep, ...] | None


@dataclass(frozen=True)
class Result:
    """Outcome of a search.

    ``best`` is the cheapest graph *visited*, the starting graph included, so ``cost_after_ms <= cost_before_ms``.
    ``runners_up`` cost a little more and
    take fewer rewrites (``archive.py``), cheapest first. ``nominees`` are others that a strategy wants compared by the
    clock, whatever they were priced at. ``curve`` starts with the starting graph's
    cost.
    """

    best: Visited
    cost_before_ms: float
    stop_reason: StopReason
    counts: Counts
    curve: Sequence[CurvePoint]
    seconds: float
    strategy: str
    seed: int
    runners_up: Sequence[Visited] = field(default_factory=tuple)
    nominees: Sequence[Visited] = field(default_factory=tuple)

    @property
    def cost_after_ms(self) -> float:
        return self.best.cost_ms

    @property
    def trace(self) -> tuple[TraceStep, ...] | None:
        return self.best.trace

    @property
    def graph(self) -> Any:
        """The best graph."""
        return self.best.graph

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, the graph as its digest."""
        return {
            "strategy": self.strategy,
            "seed": self.seed,
            "digest": self.best.digest,
            "cost_before_ms": self.cost_before_ms,
            "cost_after_ms": self.cost_after_ms,
            "stop_reason": str(self.stop_reason),
            **self.counts._asdict(),
            "seconds": self.seconds,
            "trace": None if self.trace is None else [step.to_dict() for step in self.trace],
            "curve": [point._asdict() for point in self.curve],
        }
