"""Degrees for the Schwartz-Zippel bound, and when the shapes that were seen stand for all."""

from __future__ import annotations

import functools
import math
import re

from rlflow import _core
from rlflow.rewrite import Rule
from rlflow.synthesis.operators import POINTWISE, facets_of, flags_of
from rlflow.synthesis.operators.degrees import Degree, same
from rlflow.synthesis.terms import read_term


def degree_of(graph: _core.Graph) -> int:
    """A bound on the total degree of the graph's outputs as rational functions of the inputs, the constants and the
    values of arbitrary functions.

    Sources: a product adds degrees, a quotient exchanges them, a sum of n different fractions has the common
    denominator, which is bounded by the product. A keyed function of its operands is a new indeterminate; that it sees
    equal operands on both sides is an equation of the operands' degree, which the maximum covers.
    """
    degrees: dict[int, Degree] = {}
    worst = 1
    for n in graph.order():
        op = graph.op(n)
        operands = [degrees[v] for v in graph.node_inputs(n) if v in degrees]
        own = _degree(op, operands)
        if _of_terms(op):
            own = _over_terms(graph, n, own)
        for v in graph.node_outputs(n):
            degrees[v] = own
        worst = max(worst, sum(own))
    return worst


@functools.cache
def _of_terms(op: str) -> bool:
    """Whether an element of the result may be made of several elements of an operand."""
    return not facets_of(op).one_term and "binary" not in flags_of(op)


def _over_terms(graph: _core.Graph, n: int, own: Degree) -> Degree:
    """The degree of a sum of as many such fractions as the first operand has elements; of their product, of a
    ReduceProd."""
    operands = graph.node_inputs(n)
    shape = graph.shape(operands[0]) if operands else None
    terms = max(1, math.prod([d for d in shape or [] if isinstance(d, int)]))
    if graph.op(n) == "ReduceProd":
        return own[0] * terms, own[1] * terms
    return own[0] + (terms - 1) * own[1], own[1] * terms


def _degree(op: str, operands: list[Degree]) -> Degree:
    if not operands:
        return 1, 0
    rule = facets_of(op).degree
    if rule is not None:
        return rule(operands)
    return (1, 0) if POINTWISE & flags_of(op) else same(operands)


_SAFE_CONDITION = re.compile(
    r"(?:same_shape|same_type|constant|is_float|dtype)\([^()]*\)(?: == \"\w+\")?|not constant\(\$0\)"
)


def size_argument(rule: Rule, small_rank: int) -> str:
    """Why extents 1 and 2 stand for all extents, or nothing.

    In a term of pointwise operators an element of the result is made of one element of each operand, found by
    broadcasting; an extent matters only as 1 or not 1. Where no condition speaks of numbers, a counterexample with
    greater extents has one with extents 1 and 2 at the same ranks.
    """
    if small_rank < 0 or rule.let or not all(_SAFE_CONDITION.fullmatch(w.strip()) for w in rule.where):
        return ""
    try:
        terms = [t for text in (*rule.source, *rule.target) for t in read_term(text).walk()]
    except Exception:  # noqa: BLE001 - targets may hold what only the core reads; then there is no argument
        return ""
    operators = [t for t in terms if t.kind == "op"]
    if not all(_pointwise(t.op or "", t.op_class) for t in operators) or any(t.kind == "seq" for t in terms):
        return ""
    return f"pointwise: extents 1 and 2 stand for all at ranks <= {small_rank}"


def _pointwise(op: str, op_class: str | list[str] | None) -> bool:
    if not op:
        names = op_class if isinstance(op_class, list) else []
        return op_class in ("unary", "unary0", "binary", "monotone") or (
            bool(names) and all(_pointwise(n, None) for n in names)
        )
    if op not in _core.op_names():
        return False  # what the applier makes of other things
    return facets_of(op).pointwise or bool(POINTWISE & flags_of(op))
