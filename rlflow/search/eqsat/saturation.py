"""Equality saturation as a search strategy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rlflow.errors import UsageError
from rlflow.search.budget import StopReason
from rlflow.search.descent import descend
from rlflow.search.eqsat.extract import DECODERS, Ilp
from rlflow.search.eqsat.guided import RuleSearch
from rlflow.search.eqsat.table import SaturatedGraph, SaturationLimits, saturate
from rlflow.search.levin.chain_policy import ChainPolicy
from rlflow.search.levin.trained import load_chains
from rlflow.search.node import SearchNode
from rlflow.search.problem import Problem
from rlflow.search.strategies import register
from rlflow.search.strategy_base import StrategyBase

#: Part of the seconds left that one saturation may take; the rest is for extraction.
SATURATION_SHARE = 0.5
#: Part of the seconds left that one integer programme may take.
SOLVER_SHARE = 0.5
#: Without seconds: branch-and-bound nodes for each second that the solver has by its option, and how many times these
#: seconds end it in any case.
BRANCHES, PATIENCE = 100, 20.0
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
    ``nodes``: e-nodes at most. ``scheduler``: ``backoff`` (a rule that matches too often rests), ``simple``, or
    ``mcts`` (tree search for the rule to apply next to a small e-graph). ``simulations``: of that search, a round.
    ``prior``: what it tries first: nothing (``even``), or the rules that a policy of chains thinks likely after those
    that were applied: ``levin``, the one that ships, or a file.
    ``cycles``: ``efficient`` (Tensat's descendant sets), ``vanilla`` (a search before every union) or ``none``.
    ``extraction``: ``auto`` (``ilp`` where HiGHS is installed, else ``greedy-dag``) or a method. ``solver``: seconds
    that one extraction may take. ``descent``: go downhill, rewrite by rewrite, from the start and from every graph that
    was chosen. ``egraph_out``: a file for the first e-graph, in the JSON of extraction-gym.
    """

    rounds: int = 4
    iterations: int = 15
    multi: int = 1
    nodes: int = 50_000
    scheduler: str = "backoff"
    simulations: int = 128
    prior: str = "even"
    cycles: str = "efficient"
    extraction: str = "auto"
    solver: float = 5.0
    descent: bool = True
    egraph_out: str = ""

    name: ClassVar[str] = "eqsat"
    has_trace: ClassVar[bool] = False

    def __post_init__(self) -> None:
        allowed = {
            "scheduler": ("backoff", "simple", "mcts"),
            "cycles": ("efficient", "vanilla", "none"),
            "extraction": ("auto", *DECODERS.names()),
        }
        for option, choices in allowed.items():
            value = getattr(self, option)
            if value not in choices:
                raise UsageError(
                    f"The option {option!r} of search strategy {self.name!r} is {value!r}; "
                    f"expected {', '.join(choices[:-1])} or {choices[-1]}."
                )
        object.__setattr__(self, "randomised", self.scheduler == "mcts")

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        """Saturate, extract, start again from the best; ends when a round gains nothing."""
        start = problem.root()
        if getattr(start.state, "ruleset", None) is None:
            raise UsageError(f"The search strategy {self.name!r} works on graphs of rlflow's operators only.")
        everything = self._written(problem, start, rng) if self.egraph_out else None
        best, saturated = self._lower(problem, start), set[bytes]()
        for _ in range(self.rounds):
            if problem.stopped() is not None:
                return problem.stopped() or StopReason.CONVERGED
            if start.digest in saturated:
                break
            saturated.add(start.digest)
            best = self._round(problem, everything or self._equal(problem, start, rng), best)
            start, everything = best, None
        return StopReason.CONVERGED

    def _written(self, problem: Problem, start: SearchNode, rng: np.random.Generator) -> SaturatedGraph:
        """The first e-graph, in the file before anything can end the search."""
        saturated = self._equal(problem, start, rng)
        saturated.write(self.egraph_out, node_pricer(problem))
        return saturated

    def _equal(self, problem: Problem, start: SearchNode, rng: np.random.Generator) -> SaturatedGraph:
        """What the rules find equal to a graph."""
        if self.scheduler == "mcts":
            return self.rule_search(problem, start, rng).run(self.simulations)
        rules = problem.frontier.rounding.pathless(start.state.ruleset)
        return saturate(start.graph, rules, self._limits(problem), start.state.stop)

    def _lower(self, problem: Problem, node: SearchNode) -> SearchNode:
        return descend(problem, node)[0] if self.descent else node

    def _round(self, problem: Problem, saturated: SaturatedGraph, best: SearchNode) -> SearchNode:
        """The cheapest of ``best`` and what was chosen among the graphs found equal."""
        if not saturated.extractable:
            return best
        for found in self._chosen(problem, saturated, {saturated.graph.digest}):
            lower = self._lower(problem, found)
            if problem.improves(lower, best):
                best = lower
        return best

    def rule_search(self, problem: Problem, start: SearchNode, rng: np.random.Generator) -> RuleSearch:
        """The tree search over the rules to apply to the e-graph of ``start``."""
        costs: dict[str, float] = {start.graph.digest: start.cost}

        def value(saturated: SaturatedGraph) -> float:
            choice = saturated.priced(node_pricer(problem), fused=True)
            graph, _ = saturated.extract(choice, self._method(), **self._solver_limits(problem))
            if graph.digest not in costs:
                found = problem.admit(graph)
                costs[graph.digest] = math.inf if found is None else found.cost
            return max(0.0, start.cost - costs[graph.digest])

        return RuleSearch(
            start.graph,
            problem.frontier.rounding.pathless(start.state.ruleset),
            rng,
            value,
            lambda: problem.stopped() is not None,
            nodes=self.nodes,
            cycles=self.cycles,
            policy=self._policy(),
        )

    def _chosen(self, problem: Problem, saturated: SaturatedGraph, seen: set[str]) -> Iterator[SearchNode]:
        """Graphs that summed prices take for the best; the quick methods first."""
        for method in dict.fromkeys(("greedy-dag", self._method())):
            for fused in (True, False):
                found = self._lightest(problem, saturated, seen, fused, method)
                if found is not None:
                    yield found

    def _limits(self, problem: Problem) -> SaturationLimits:
        left = problem.seconds_left()
        seconds = None if left is None else SATURATION_SHARE * left
        return SaturationLimits(self.iterations, self.nodes, seconds, self.multi, self.cycles, self.scheduler)

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
            graph, _ = saturated.extract(choice, method, **self._solver_limits(problem))
            if graph.digest in seen:
                return None
            seen.add(graph.digest)
            found = problem.admit(graph)
            if found is not None:
                return found
        return None

    def ready(self) -> None:
        """Raises UsageError where extraction needs a solver that is not installed, ModelError for a bad prior."""
        if self._method() == "ilp" and (lacks := Ilp.available()) is not None:
            raise UsageError(
                f"The search strategy {self.name!r} with extraction=ilp cannot be used here: {lacks}. "
                "extraction=greedy-dag needs nothing."
            )

        self._policy()

    def _policy(self) -> tuple[ChainPolicy, Sequence[str]] | None:
        """What a tree search over rules begins with. Raises ModelError for a file that cannot be read."""
        if self.scheduler != "mcts" or self.prior == "even":
            return None
        return load_chains(None if self.prior == "levin" else self.prior)

    def _method(self) -> str:
        if self.extraction != "auto":
            return self.extraction
        return "ilp" if Ilp.available() is None else "greedy-dag"

    def _solver_limits(self, problem: Problem) -> dict[str, Any]:
        """What one extraction may take. Where the budget has no seconds the same seed gives the same graph, so that the
        solver's limit is a count too; its clock only ends what would never end.
        """
        left = problem.seconds_left()
        if left is None:
            return {"seconds": PATIENCE * self.solver, "branches": max(1, round(BRANCHES * self.solver))}
        return {"seconds": max(0.0, min(self.solver, SOLVER_SHARE * left))}


def node_pricer(problem: Problem) -> Any:
    """Prices of nodes alone: the problem's own where it is a formula; measured prices know few nodes alone."""
    from rlflow import price

    pricer = problem.prices.pricer
    return price.make("analytic").pricer if pricer.is_table else pricer


@register
@dataclass(frozen=True)
class Tensat(EqSat):
    """Tensat's settings (MLSys 2021): one round of 15 iterations, one multi-root step, 50,000 nodes, ILP extraction.

    The rules are the problem's, with the conditions that make them true. Nothing follows the extraction.
    """

    rounds: int = 1
    descent: bool = False

    name: ClassVar[str] = "tensat"
