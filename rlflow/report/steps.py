"""A trace step by step: the rule, what it did to which nodes, and what the graph costs then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rlflow.errors import RlflowError

if TYPE_CHECKING:
    from rlflow.rewrite import Rule

__all__ = ["ReplayedStep", "replayed"]


class ReplayedStep(NamedTuple):
    """``removed`` and ``made``: nodes in words; ``formula_ms``: the analytic cost after the step, ``None`` where the
    formula has none for this graph.
    """

    rule: Rule
    removed: tuple[str, ...]
    made: tuple[str, ...]
    formula_ms: float | None


def replayed(model: Any, trace: Sequence[Mapping[str, Any]], rules: Any = None, **loading: Any) -> list[ReplayedStep]:
    """The steps of ``trace`` on its model. Raises :class:`rlflow.errors.UsageError` where it was recorded on
    another one, or with other rules. ``loading``: as for ``load_model``.
    """
    return list(_steps(model, trace, rules, loading))


def _steps(model: Any, trace: Sequence[Mapping[str, Any]], rules: Any, loading: Any) -> Iterator[ReplayedStep]:
    from rlflow import price
    from rlflow.frontends import load_model
    from rlflow.rewrite import State, compiled
    from rlflow.rulesets import load_library
    from rlflow.search.trace import read_trace, replay_states

    imported = load_model(model, **loading)
    library, formula = load_library(rules), price.make("analytic")
    words = {node: _named(one.node, imported.graph.op(node)) for node, one in imported.origin.nodes.items()}
    before = imported.graph
    steps = read_trace(trace)
    for number, state in enumerate(replay_states(State(before, compiled(library)), steps)):
        rule, graph = library[steps[number].rule], state.graph
        old, new = set(before.order()), set(graph.order())
        made = [node for node in graph.order() if node not in old]
        removed = [words.get(node, before.op(node)) for node in before.order() if node not in new]
        for node in made:
            words[node] = f"{graph.op(node)} of step {number + 1}"
        yield ReplayedStep(
            rule,
            tuple(removed),
            tuple(graph.op(node) for node in made),
            _price(formula, graph),
        )
        before = graph


def _named(node: Any, operator: str) -> str:
    name = node.name or next((output for output in node.output if output), "")
    return f"{operator} {name}".strip()


def _price(formula: Any, graph: Any) -> float | None:
    try:
        return float(formula.cost(graph).total_ms)
    except RlflowError:
        return None
