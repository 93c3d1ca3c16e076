"""Equality saturation: many equal graphs at once, and the best of them.

>>> from rlflow.search.eqsat import EGraph, Saturation, extract
>>> egraph = EGraph("terms")
>>> root = egraph.parse("(mul (mul a two) half)")
>>> rules = [egraph.rule("associate", ["(mul (mul ?x ?y) ?z)=>(mul ?x (mul ?y ?z))"]),
...          egraph.rule("cancel", ["(mul ?x (mul two half))=>?x"])]
>>> Saturation(egraph, rules, [root]).run()
'saturated'
>>> problem = egraph.snapshot([root])
>>> problem.set_cost([1.0] * len(problem))
>>> extract(problem, "greedy-dag").cost
1.0

The e-graph itself is native; ``docs/eqsat.md`` says what it can do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlflow._core import EGraph, EGraphRule, Extraction, Saturation
from rlflow.search.eqsat.extract import DECODERS, Extracted, extract
from rlflow.search.eqsat.gym import GymGraph, gym_graph, read_gym, write_gym
from rlflow.search.eqsat.tensat_text import (
    ENode,
    TermBuilder,
    TermGraph,
    read_model,
    read_rule_lines,
    tensat_rules,
    write_model,
)

if TYPE_CHECKING:
    from rlflow.search.eqsat.benchmarks import BENCHMARKS

__all__ = [
    "BENCHMARKS",
    "DECODERS",
    "EGraph",
    "EGraphRule",
    "ENode",
    "Extracted",
    "Extraction",
    "GymGraph",
    "Saturation",
    "TermBuilder",
    "TermGraph",
    "extract",
    "gym_graph",
    "read_gym",
    "read_model",
    "read_rule_lines",
    "tensat_rules",
    "write_gym",
    "write_model",
]


def __getattr__(name: str) -> Any:
    """The benchmarks open the zoo, which no search needs."""
    if name == "BENCHMARKS":
        from rlflow.search.eqsat.benchmarks import BENCHMARKS

        return BENCHMARKS
    raise AttributeError(f"module 'rlflow.search.eqsat' has no attribute {name!r}")
