"""Does a statement follow from other rules in a few steps?

Both sides stand as concrete graphs (drawn at several independent shapes); from the source the rules are applied
breadth first until the target turns up. A derivation is *directed* where every step applies a rule from left to right;
where none is found, steps from the target's side count too, which makes it an equational proof: rules used backwards.

Graphs are compared up to the order of operands of commutative operators, and up to constant subexpressions: what
depends on constants only is evaluated over the prime field and compared by value, because rlflow folds it at export
(weights ``a*(b*c)`` and ``(a*b)*c`` are one weight).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlflow import _core
from rlflow.errors import GraphError, ProofError
from rlflow.rewrite import RuleLibrary, RuleSet, compiled
from rlflow.synthesis.domains import Array, Field, Unsupported
from rlflow.synthesis.field import key_of
from rlflow.synthesis.operators import NeedsOrder
from rlflow.synthesis.semantics import Evaluator

#: States opened in one layer of the search, at most; what lies beyond is not looked at.
LAYER = 400
Chain = tuple[str, ...]


@dataclass(frozen=True)
class Derivation:
    """How a target was reached: names of rules applied from the source on, then of rules applied from the target on
    (read backwards: they are used from right to left). ``instances``: how many independent graphs were tried."""

    forward: Chain
    backward: Chain = ()
    instances: int = 1

    @property
    def directed(self) -> bool:
        """Whether every step is a rewrite from left to right, which a search can make."""
        return not self.backward

    def __len__(self) -> int:
        return len(self.forward) + len(self.backward)

    def __str__(self) -> str:
        return ", ".join([*self.forward, *(f"{name} (backwards)" for name in reversed(self.backward))])


class Folding(Evaluator):
    """Keys of graphs, equal where two graphs differ in operand order and constant subexpressions only."""

    def __init__(self) -> None:
        super().__init__(Field(), 0)
        self._widened = {}
        self._keys: dict[tuple[str, int], int] = {}
        self._folded: dict[tuple[str, int], Array | None] = {}

    def key(self, graph: _core.Graph) -> tuple[int, ...]:
        """The key of a graph: one number an output."""
        return tuple(self._operand(graph, v) for v in graph.outputs())

    def _operand(self, graph: _core.Graph, v: int) -> int:
        n, output = graph.producer(v), graph.output_index(v)
        digest = (graph.node_digest(n), output)
        if digest not in self._keys:
            self._keys[digest] = self._constant_key(graph, v) or key_of(self._operator(graph, n), output)
        return self._keys[digest]

    def _operator(self, graph: _core.Graph, n: int) -> int:
        digest = (graph.node_digest(n), -1)
        if digest not in self._keys:
            operands = [0 if v < 0 else self._operand(graph, v) for v in graph.node_inputs(n)]
            if operands and "commutative" in _core.op_row(graph.op(n))["flags"]:
                operands.sort()
            attributes = sorted(graph.attrs(n).items())
            self._keys[digest] = key_of(graph.op(n), attributes, operands) if operands else key_of(digest[0])
        return self._keys[digest]

    def _constant_key(self, graph: _core.Graph, v: int) -> int | None:
        array = self._value(graph, v) if graph.is_const(graph.producer(v)) else None
        return None if array is None else key_of("constant", graph.dtype(v), array.shape, array.tobytes())

    def _value(self, graph: _core.Graph, v: int) -> Array | None:
        """The elements of a constant value; None where they have no exact meaning in the field."""
        n = graph.producer(v)
        place = (graph.node_digest(n), graph.output_index(v))
        if place not in self._folded:
            outputs = graph.node_outputs(n)
            for k, array in enumerate(self._values(graph, n) or [None] * len(outputs)):
                self._folded[graph.node_digest(n), k] = array
        return self._folded[place]

    def _values(self, graph: _core.Graph, n: int) -> Sequence[Array | None] | None:
        if graph.op(n) == "Constant":
            return [self._constant(graph, n)]
        operands: dict[int, Array] = {}
        for v in graph.node_inputs(n):
            array = self._value(graph, v) if v >= 0 else None
            if v >= 0 and array is None:
                return None
            if array is not None:
                operands[v] = array
        try:
            with np.errstate(over="ignore"):
                return self._call(graph, n, graph.node_outputs(n), operands)
        except (NeedsOrder, Unsupported, ProofError):
            return None


@dataclass
class _Layer:
    """Graphs that lie so many steps away: key -> chains of rule names that lead there."""

    chains: dict[tuple[int, ...], set[Chain]] = field(default_factory=dict)
    states: dict[tuple[int, ...], _core.State] = field(default_factory=dict)


class Explorer:
    """The graphs around one graph, layer by layer."""

    def __init__(
        self, graph: _core.Graph, rules: RuleSet, folding: Folding, without: Collection[str] = (), limit: int = LAYER
    ) -> None:
        self.rules, self.folding, self.limit = rules, folding, limit
        self.names = rules.names
        self.without = {k for k, name in enumerate(self.names) if name in without}
        key = folding.key(graph)
        self.layers = [_Layer({key: {()}}, {key: _core.State(graph, rules, weight_limit_bytes=None)})]
        self.seen = {key: 0}

    def layer(self, depth: int) -> dict[tuple[int, ...], set[Chain]]:
        """Keys that lie ``depth`` steps away and not nearer, with the chains that lead there."""
        while len(self.layers) <= depth:
            self.layers.append(self._next(self.layers[-1], len(self.layers)))
        return self.layers[depth].chains

    def _next(self, last: _Layer, depth: int) -> _Layer:
        layer = _Layer()
        for key, state in last.states.items():
            for name, child_key, opener in self._children(state):
                if self.seen.setdefault(child_key, depth) < depth:
                    continue
                chains = layer.chains.setdefault(child_key, set())
                if len(chains) < 64:
                    chains.update((*chain, name) for chain in last.chains[key])
                if child_key not in layer.states and len(layer.states) < self.limit:
                    layer.states[child_key] = state.open(opener)
        return layer

    def _children(self, state: _core.State) -> Iterator[tuple[str, tuple[int, ...], int]]:
        moves = state.moves()
        done: dict[tuple[int, str], None] = {}
        for i, rule in enumerate(moves.rule.tolist()):
            place = (rule, moves.digest_hex(i))
            if rule in self.without or place in done:
                continue
            done[place] = None
            try:
                yield self.names[rule], self.folding.key(state.child(i)), i
            except GraphError:
                continue


def derive(
    pairs: Iterable[tuple[_core.Graph, _core.Graph]],
    rules: RuleLibrary | RuleSet,
    steps: int = 3,
    *,
    without: Collection[str] = (),
    backwards: bool = True,
) -> Derivation | None:
    """A derivation of each pair's second graph from its first in at most ``steps`` steps, or None.

    The pairs are one statement at independent shapes. The chain that works for all of them is returned; where the
    shapes need different chains, the first pair's. ``without``: rules not to be used (the statement itself).
    ``backwards``: whether rules may be used from right to left.
    """
    ruleset, folding = compiled(rules), Folding()
    found: list[set[tuple[Chain, Chain]]] = []
    for source, target in pairs:
        chains = _meet(source, target, ruleset, folding, steps, without, backwards)
        if not chains:
            return None
        found.append(chains)
    if not found:
        return None
    common = set.intersection(*found) or found[0]
    forward, backward = min(common, key=lambda pair: (len(pair[0]) + len(pair[1]), pair))
    return Derivation(forward, backward, len(found))


def _meet(
    source: _core.Graph,
    target: _core.Graph,
    rules: RuleSet,
    folding: Folding,
    steps: int,
    without: Collection[str],
    backwards: bool,
) -> set[tuple[Chain, Chain]]:
    """Shortest pairs of chains that meet; directed ones are preferred, however long."""
    goal = folding.key(target)
    forward = Explorer(source, rules, folding, without)
    for depth in range(steps + 1):
        chains = forward.layer(depth).get(goal)
        if chains:
            return {(chain, ()) for chain in chains}
    if not backwards:
        return set()
    backward = Explorer(target, rules, folding, without)
    for total in range(1, steps + 1):
        for behind in range(1, total + 1):
            ahead = forward.layer(total - behind)
            both = ahead.keys() & backward.layer(behind).keys()
            if both:
                return {(left, right) for key in both for left in ahead[key] for right in backward.layer(behind)[key]}
    return set()


def all_chains(
    source: _core.Graph, target: _core.Graph, rules: RuleSet, folding: Folding, steps: int, without: Collection[str]
) -> set[Chain]:
    """Every directed chain of at most ``steps`` rules from source to target that passes no graph twice."""
    goal, explorer = folding.key(target), Explorer(source, rules, folding, without)
    found: set[Chain] = set()
    for depth in range(steps + 1):
        found |= explorer.layer(depth).get(goal, set())
    return found
