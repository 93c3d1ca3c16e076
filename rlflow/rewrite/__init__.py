"""Substitutions: rules as data, their library, and the native matcher that applies them.

>>> from rlflow.rewrite import State, compiled, load_rules
>>> rules = load_rules(families=["merge"])
>>> state = State(graph, compiled(rules))                              # doctest: +SKIP
>>> child = state.child(0)                                             # doctest: +SKIP

A rule is a statement "for all shapes and attributes that satisfy ``where``, source = target", and carries the record
of its proof; the loader
refuses a rule whose record is absent or stale. :func:`explain` says why a rule does not fire. The term language is in
``docs/rules.md``.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlflow._core import Graph, Moves, RuleSet, State, StopToken
from rlflow._core import explain as _explain
from rlflow.rewrite.library import RuleLibrary, all_shipped, load_rules, read_rules
from rlflow.rewrite.record import PROVER_VERSION, ProofRecord, semantics_digest
from rlflow.rewrite.rule import Rule

__all__ = [
    "PROVER_VERSION",
    "Moves",
    "ProofRecord",
    "Rule",
    "RuleLibrary",
    "RuleSet",
    "State",
    "StopToken",
    "all_shipped",
    "compiled",
    "explain",
    "load_rules",
    "read_rules",
    "semantics_digest",
]


def compiled(rules: RuleLibrary | RuleSet | Sequence[Rule]) -> RuleSet:
    """What the native core matches with: a library's rules, compiled once; a compiled set is returned as it is."""
    if isinstance(rules, RuleSet):
        return rules
    if isinstance(rules, RuleLibrary):
        return rules.compile()
    return RuleSet([rule.core for rule in rules])


def explain(graph: Graph, rule: Rule, node: int | None = None) -> list[str]:
    """Sentences that say, for each node where the rule's root could stand (or for one), why it does not fire there,
    or that it does."""
    return list(_explain(graph, rule.core, node))
