"""Which equations the rules kept so far imply: searched with the compiled core on the equation's own graphs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rlflow import _core
from rlflow.errors import GraphError
from rlflow.rewrite import Rule
from rlflow.synthesis.generate.graphs import Equation, Instances, Shape, leaves
from rlflow.synthesis.generate.vocabulary import Group

Key = tuple[Any, ...]


class Deriver:
    """Answers "do these rules lead from one side to the other in at most three steps?"."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = list(rules)
        self._set = _core.RuleSet([rule.core for rule in self.rules])

    def add(self, rules: Sequence[Rule]) -> None:
        """Rules to use from now on."""
        if rules:
            self.rules += rules
            self._set = _core.RuleSet([rule.core for rule in self.rules])

    def children(self, graph: _core.Graph) -> list[_core.Graph]:
        """What one step makes of a graph."""
        state = _core.State(graph, self._set)
        out = []
        for k in range(len(state.moves())):
            try:
                out.append(state.child(k))
            except GraphError:
                continue  # two roots, one upstream of the other: the move would close a cycle
        return out

    def reaches(self, before: _core.Graph, after: _core.Graph, steps: int = 3) -> bool:
        """Whether ``before`` becomes ``after`` (but for the order of commutative operands) in at most ``steps``
        steps, going forward
        from both ends: rules are kept in both directions where both are proved."""
        near, far = {Shape(before).key: before}, {Shape(after).key: after}
        if near.keys() & far.keys():
            return True
        seen: tuple[dict[Key, _core.Graph], dict[Key, _core.Graph]] = (dict(near), dict(far))
        edges = [near, far]
        for step in range(steps):
            side = step % 2
            grown = {Shape(c).key: c for g in edges[side].values() for c in self.children(g)}
            edges[side] = {k: g for k, g in grown.items() if k not in seen[side]}
            seen[side].update(edges[side])
            if edges[side].keys() & seen[1 - side].keys():
                return True
        return False

    def implies(self, equation: Equation, group: Group, steps: int = 3) -> bool:
        """Whether the rules imply an equation at the extents of the vocabulary's first world."""
        sides = sides_of(equation, group)
        return sides is not None and self.reaches(*sides, steps=steps)


def sides_of(equation: Equation, group: Group, world: int = 0) -> tuple[_core.Graph, _core.Graph] | None:
    """Both sides as graphs over the same inputs; None where the core does not type them."""
    index = {name: k for k, (name, _) in enumerate(group.inputs)}
    inputs: dict[int, None] = {}
    for k in leaves((*equation.left, *equation.right)):
        derived = group.inputs[k][1].derived
        for name in _names(derived) if derived else []:
            inputs.setdefault(index[name])
        if not derived:
            inputs.setdefault(k)
    instances = Instances(group, world)
    try:
        return instances.graph(equation.left, sorted(inputs)), instances.graph(equation.right, sorted(inputs))
    except GraphError:
        return None


def _names(term: Any) -> list[str]:
    return [term] if isinstance(term, str) else [n for t in term[1:] for n in _names(t)]
