"""Equality saturation as a search strategy."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.eqsat.extract import METHODS
from rlflow.search.eqsat.table import Limits, SaturatedGraph, saturate
from rlflow.search.problem import Problem, SearchNode, StrategyBase
from rlflow.search.registry import register

#: Part of the seconds left that one saturation may take; the rest is for extraction.
SATURATION_SHARE = 0.5
#: Where the cheapest graph's folded weights are too heavy, all the model's weights are charged this part of its cost,
#: then more, until the choice is light enough.
WEIGHT_SHARE = 0.1
WEIGHT_FACTORS = (0.0, 1.0, 8.0, 64.0)


@register
@dataclass(frozen=True)
class EqSat(StrategyBase):
    """Equality saturation: all rules everywhere at once, then the cheapest of all graphs found equal.

    Summed node prices choose a handful of graphs (each node alone, and with what runtimes fuse nearly free; greedy and
    integer programming); the problem's own cost decides among them. ``rounds``: how often that starts again from the
    best. ``iterations``: of one saturation, at most. ``multi``: iterations in which rules with several roots apply.
    ``nodes``: e-nodes at most. ``scheduler``: ``backoff`` (a rule that matches too often rests) or ``simple``.
    ``cycles``: ``efficient`` (Tensat's descendant sets) or ``vanilla`` (a search before every union). ``extraction``:
    ``auto`` (``ilp`` where HiGHS is installed, else ``greedy-dag``) or a method. ``solver``: seconds that one
    extraction may take. ``egraph_out``: a file for the first e-graph, in the JSON of extraction-gym.
    """

    rounds: int = 3
    iterations: int = 15
    multi: int = 1
    nodes: int = 50_000
    scheduler: str = "backoff"
    cycles: str = "efficient"
    extraction: str = "auto"
    solver: float = 5.0
    egraph_out: str = ""

    name: ClassVar[str] = "eqsat"
    has_trace: ClassVar[bool] = False

    def __post_init__(self) -> None:
        allowed = {
            "scheduler": ("backoff", "simple"),
            "cycles": ("efficient", "vanilla"),  # extraction wants an acyclic e-graph
            "extraction": ("auto", *METHODS),
        }
        for option, choices in allowed.items():
            value = getattr(self, option)
            if value not in choices:
                raise UsageError(
                    f"The option {option!r} of search strategy {self.name!r} is {value!r}; "
                    f"expected {', '.join(choices[:-1])} or {choices[-1]}."
                )

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Saturate, extract, start again from the best; ends when a round gains nothing."""
        node = problem.root()
        if getattr(node.state, "ruleset", None) is None:
            raise UsageError(f"The search strategy {self.name!r} works on graphs of rlflow's operators only.")
        for _ in range(self.rounds):
            if problem.stopped() is not None:
                return problem.stopped() or StopReason.CONVERGED
            best = self._round(problem, node)
            if best is None:
                return StopReason.CONVERGED
            node = best
        return StopReason.CONVERGED

    def _round(self, problem: Problem, node: SearchNode) -> SearchNode | None:
        """The cheapest graph found equal to ``node``'s, or None where that is ``node``'s own."""
        saturated = saturate(node.graph, node.state.ruleset, self._limits(problem), node.state.stop)
        if self.egraph_out and node is problem.root():
            saturated.write(self.egraph_out, node_pricer(problem))
        if not saturated.extractable:
            return None
        best, seen = node, {node.graph.digest}
        for fused in (False, True):
            for method in dict.fromkeys((self._method(), "greedy-dag")):
                found = self._lightest(problem, saturated, seen, fused, method)
                if found is not None and problem.improves(found, best):
                    best = found
        return None if best is node else best

    def _limits(self, problem: Problem) -> Limits:
        left = problem.meter.seconds_left()
        seconds = None if left is None else SATURATION_SHARE * left
        return Limits(self.iterations, self.nodes, seconds, self.multi, self.cycles, self.scheduler)

    def _lightest(
        self, problem: Problem, saturated: SaturatedGraph, seen: set[str], fused: bool, method: str
    ) -> SearchNode | None:
        """The first graph whose weights are light enough, asking more and more for weights; None where it was seen."""
        root = problem.root()
        unit = WEIGHT_SHARE * root.cost / max(1, root.state.weight_bytes)
        for factor in WEIGHT_FACTORS:
            if problem.stopped() is not None:
                return None
            choice = saturated.priced(node_pricer(problem), fused=fused, ms_per_weight_byte=factor * unit)
            graph, _ = saturated.extract(choice, method, seconds=self._solver_seconds(problem))
            if graph.digest in seen:
                return None
            seen.add(graph.digest)
            found = problem.admit(graph)
            if found is not None:
                return found
        return None

    def _method(self) -> str:
        if self.extraction != "auto":
            return self.extraction
        return "ilp" if importlib.util.find_spec("highspy") is not None else "greedy-dag"

    def _solver_seconds(self, problem: Problem) -> float:
        left = problem.meter.seconds_left()
        return self.solver if left is None else max(0.0, min(self.solver, left))


def node_pricer(problem: Problem) -> Any:
    """Prices of nodes alone: the problem's own where it is a formula; measured prices know few nodes alone."""
    from rlflow import cost

    pricer = problem.prices.pricer
    return cost.make("analytic").pricer if pricer.is_table else pricer


@register
@dataclass(frozen=True)
class Tensat(EqSat):
    """Tensat's settings (MLSys 2021): one round of 15 iterations, one multi-root step, 50,000 nodes, ILP extraction.

    The rules are the problem's, with the conditions that make them true.
    """

    rounds: int = 1

    name: ClassVar[str] = "tensat"
