"""Equality saturation of rlflow's own graphs, by the rules of its library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlflow._core import EGraph, EGraphRule, Extraction, Graph, Pricer, Saturation, egraph_declines
from rlflow.ops import op_row
from rlflow.rewrite import RuleLibrary, RuleSet, compiled
from rlflow.search.eqsat.extract import Extracted, extract
from rlflow.search.eqsat.gym import gym_graph, write_gym

#: What a node costs, as a part of its price alone, where a runtime is expected to fuse it into its neighbour.
FUSED = 0.1
_FUSIBLE = ("elementwise", "view")
_SOURCES = ("Input", "Constant", "Output", "Absent")


def declined(rules: RuleLibrary | RuleSet | Iterable[Any]) -> dict[str, str]:
    """The rules that the e-graph cannot use, by name, each with the reason as a clause. All others it uses."""
    found = {rule.name: egraph_declines(rule) for rule in compiled(rules).rules}  # type: ignore[arg-type]
    return {name: reason for name, reason in found.items() if reason}


@dataclass(frozen=True)
class SaturationLimits:
    """When a saturation ends, and how it is run; see :class:`~rlflow.search.eqsat.Saturation`."""

    iterations: int = 15
    nodes: int = 50_000
    seconds: float | None = None
    multi_iterations: int = 1
    cycles: str = "efficient"
    scheduler: str = "backoff"


@dataclass
class SaturatedGraph:
    """A graph with everything that the rules found equal to it."""

    graph: Graph
    egraph: EGraph
    outputs: list[int]
    stop_reason: str
    reports: list[dict[str, Any]]
    counts: list[dict[str, Any]]
    _problem: Extraction | None = field(default=None, repr=False)

    @property
    def problem(self) -> Extraction:
        """What there is to choose from, without costs of its own."""
        if self._problem is None:
            self._problem = self.egraph.snapshot(self.outputs)
        return self._problem

    def priced(self, pricer: Pricer, *, fused: bool = False, ms_per_weight_byte: float = 0.0) -> Extraction:
        """The choice with the price in ms of each node alone; ``fused``: what runtimes fuse counts :data:`FUSED` of it.

        ``ms_per_weight_byte`` is charged for every constant that something reads, so that the choice takes fewer.
        """
        problem = self.problem
        cost = self.egraph.table_costs(problem.node_ids, pricer)
        if fused:
            cost = cost * self._fusion_factors()
        if ms_per_weight_byte:
            cost = cost + ms_per_weight_byte * self.egraph.weight_bytes(problem.node_ids)
        problem.set_cost(cost)
        return problem

    @property
    def extractable(self) -> bool:
        """Whether the cycle filter has left the outputs a finite graph."""
        return bool(np.isfinite(self.problem.choice_cost(self.problem.greedy_tree())))

    def write(self, path: str, pricer: Pricer) -> None:
        """Write the e-graph with the price of each node, in the JSON of extraction-gym."""
        write_gym(path, gym_graph(self.egraph, self.priced(pricer)))

    def extract(self, problem: Extraction, method: str, **options: Any) -> tuple[Graph, Extracted]:
        """The graph of the choice that ``method`` makes; ``options`` are those of :func:`extract`."""
        found = extract(problem, method, **options)
        return self.egraph.chosen_graph(self.graph, self.outputs, problem, found.choice), found

    def _fusion_factors(self) -> NDArray[np.float64]:
        arrays = self.egraph.nodes()
        ops = arrays["op"][np.searchsorted(arrays["id"], self.problem.node_ids)]
        names = {int(op): self.egraph.op_name(int(op)) for op in np.unique(ops)}
        factor = {op: FUSED if _is_fusible(name) else 1.0 for op, name in names.items()}
        return np.array([factor[int(op)] for op in ops])


def _is_fusible(name: str) -> bool:
    return name not in _SOURCES and op_row(name)["fusion"] in _FUSIBLE


def saturate(
    graph: Graph, rules: RuleSet, limits: SaturationLimits = SaturationLimits(), stop: Any = None
) -> SaturatedGraph:
    """Everything that the rules find equal to ``graph``, within ``limits``; rules in :func:`declined` are left out.

    Raises :class:`~rlflow.errors.GraphError` where two values that a rule equates are known to differ: a false rule.
    """
    egraph, outputs = EGraph.of_graph(graph)
    run = Saturation(
        egraph,
        list(usable(egraph, rules)),
        outputs,
        iterations=limits.iterations,
        nodes=limits.nodes,
        seconds=limits.seconds,
        multi_iterations=limits.multi_iterations,
        cycles=limits.cycles,
        scheduler=limits.scheduler,
        stop=stop,
    )
    reason = run.run()
    egraph.rebuild()
    return SaturatedGraph(graph, egraph, outputs, reason, run.reports(), run.counts())


def usable(egraph: EGraph, rules: RuleSet) -> Iterator[EGraphRule]:
    """The rules for an e-graph, those in :func:`declined` left out; the shapes of one share its name."""
    for rule in rules.rules:
        if not egraph_declines(rule):
            yield from egraph.table_rules(rule)
