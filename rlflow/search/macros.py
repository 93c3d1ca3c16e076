"""Macro moves of a graph: which are offered, and how they stand among the single ones.

A search's prices are sums over regions of the graph, so rewrites that pay only together lie near each other. Two kinds
of macro are offered beside the single moves:

* a *bundle* (``rlflow.rewrite.bundles``) at all its seeds in the graph, and at each set of regions that look alike; a
  region is what pointwise operators join without a sum of two streams between;
* a *rule* that makes the graph dearer wherever it is applied alone, at all matches of each cluster of neighbours, and
  at those of all clusters at once.

A macro is numbered after the single moves and behaves like one of them: it has a digest, a price, the nodes that it
touched, and the number of its first rule. Its trace are its single steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rlflow.ops import members
from rlflow.rewrite.bundles import Applied, Macros, Plan, Seed
from rlflow.search.selection import signatures_of

if TYPE_CHECKING:
    from rlflow.search.node import SearchNode

#: At most so many seeds in a macro, so many clusters and classes of regions, and so many matches that are looked at.
MOST_SEEDS, MOST_CLUSTERS, MOST_CLASSES, MOST_MATCHES = 256, 4, 4, 512
#: Nodes that are copied to find the macros of a graph: each step copies all of them.
MOST_WORK = 1_500_000
#: A region ends after so many pointwise operators.
_REACH = 24
_FEWEST = 2
_COUNTS = ("nodes_added", "nodes_removed", "edges_added", "edges_removed")


@dataclass(frozen=True, eq=False)
class Macro:
    """A macro move. ``rule``: the number that it goes by, that of its first seed. ``counts``: working nodes and edges
    added and removed.
    """

    plan: Plan
    seeds: tuple[Seed, ...]
    applied: Applied
    counts: tuple[int, int, int, int]

    @property
    def rule(self) -> int:
        return self.seeds[0].rule

    @property
    def place(self) -> bytes:
        """The nodes that it touches, as a signature has them."""
        return np.array(sorted(self.applied.touched), dtype=np.uint32).tobytes()


class WithMacros:
    """The core's moves and the macros after them, as the same arrays."""

    def __init__(self, singles: Any, macros: Sequence[Macro]) -> None:
        self.singles, self.macros = singles, list(macros)

    def __len__(self) -> int:
        return len(self.singles) + len(self.macros)

    def _joined(self, name: str, more: Sequence[Any]) -> np.ndarray:
        first = np.asarray(getattr(self.singles, name))
        return np.concatenate((first, np.asarray(more, dtype=first.dtype).reshape(len(more), *first.shape[1:])))

    @cached_property
    def rule(self) -> np.ndarray:
        return self._joined("rule", [macro.rule for macro in self.macros])

    @cached_property
    def digest(self) -> np.ndarray:
        rows = [np.frombuffer(bytes.fromhex(macro.applied.state.graph.digest), dtype=np.uint8) for macro in self.macros]
        return self._joined("digest", rows)

    @cached_property
    def weight_bytes(self) -> np.ndarray:
        return self._joined("weight_bytes", [macro.applied.state.weight_bytes for macro in self.macros])

    @cached_property
    def touched(self) -> np.ndarray:
        more = [node for macro in self.macros for node in sorted(macro.applied.touched)]
        return self._joined("touched", more)

    @cached_property
    def touched_begin(self) -> np.ndarray:
        first = np.asarray(self.singles.touched_begin)
        ends = first[-1] + np.cumsum([len(macro.applied.touched) for macro in self.macros])
        return np.concatenate((first, ends.astype(first.dtype)))

    def __getattr__(self, name: str) -> np.ndarray:
        if name not in _COUNTS:
            raise AttributeError(name)
        found = self._joined(name, [macro.counts[_COUNTS.index(name)] for macro in self.macros])
        setattr(self, name, found)
        return found


class MacroMoves:
    """Finds the macros of a search's graphs; all have the same rule set, whose compiled bundles are kept."""

    def __init__(self) -> None:
        self._kept: Macros | None = None

    def found(self, node: SearchNode, raw: Any) -> list[Macro]:
        """The macros of ``node``, whose single moves are ``raw``, beyond those that it has."""
        return list(self._found(node, raw)) if getattr(node.state, "ruleset", None) is not None else []

    def again(self, macro: Macro, later: SearchNode) -> WithMacros | None:
        """The moves of a later node, with ``macro`` as the last, as far as it still stands."""
        applied = self._macros(later.state).run(later.state, macro.plan, macro.seeds)
        if applied is None:
            return None
        counts = _counts(later.graph, applied.state.graph)
        return WithMacros(later.state.moves(), [Macro(macro.plan, macro.seeds, applied, counts)])

    def _macros(self, state: Any) -> Macros:
        if self._kept is None:
            self._kept = Macros(state.ruleset)
        return self._kept

    def _found(self, node: SearchNode, raw: Any) -> Iterator[Macro]:
        known = {row.tobytes() for row in np.ascontiguousarray(raw.digest)} | {node.digest}
        places = {touched for _, touched in signatures_of(raw, np.arange(len(raw)))}
        for macro in node.macros:
            known.add(bytes.fromhex(macro.applied.state.graph.digest))
            places.add(macro.place)
        macros = self._macros(node.state)
        left = MOST_WORK // max(node.graph.num_nodes, 1)
        for plan, seeds in _choices(node, raw, macros):
            if len(seeds) > left:
                continue
            applied = macros.run(node.state, plan, seeds, left)
            left -= len(seeds) if applied is None else len(applied.steps)
            if applied is None or bytes.fromhex(applied.state.graph.digest) in known:
                continue
            macro = Macro(plan, tuple(seeds), applied, _counts(node.graph, applied.state.graph))
            if macro.place in places:
                continue  # it would be taken for another move
            places.add(macro.place)
            known.add(bytes.fromhex(applied.state.graph.digest))
            yield macro


# --- what to try ------------------------------------------------------------------------------------------------------


def _choices(node: SearchNode, raw: Any, macros: Macros) -> Iterator[tuple[Plan, Sequence[Seed]]]:
    begins, touched = np.asarray(raw.touched_begin).tolist(), np.asarray(raw.touched).tolist()
    by_rule: dict[int, list[int]] = defaultdict(list)
    for i, rule in enumerate(np.asarray(raw.rule).tolist()):
        by_rule[rule].append(i)

    def seed(i: int) -> Seed:
        return Seed(int(raw.rule[i]), tuple(touched[begins[i] : begins[i + 1]]))

    for plan in macros.plans:
        index = [i for rule in sorted(plan.seeds) for i in by_rule.get(rule, ())][:MOST_SEEDS]
        if index and plan.begins(by_rule):
            yield plan, [seed(i) for i in index]
            for part in _alike(node, raw, index, seed):
                if plan.begins(int(raw.rule[i]) for i in part):
                    yield plan, [seed(i) for i in part]
    left = MOST_MATCHES
    for rule, index in by_rule.items():
        dear = _dearer_alone(raw, index)[:left]
        if len(dear) < _FEWEST:
            continue
        left -= len(dear)
        for part in _clusters(node, raw, dear, seed):
            yield macros.rule(rule), [seed(i) for i in part]


def _dearer_alone(raw: Any, index: Sequence[int]) -> list[int]:
    """The matches of a rule that gain nothing and cost something; none where one of them gains."""
    delta, unknown = np.asarray(raw.delta_ms)[index], np.asarray(raw.unknown)[index]
    if bool(((delta < 0) & (unknown == 0)).any()):
        return []
    return [i for i, worse in zip(index, (delta > 0) & (unknown == 0), strict=True) if worse]


def _clusters(node: SearchNode, raw: Any, index: Sequence[int], seed: Any) -> list[list[int]]:
    """Matches that touch or neighbour each other, two at least; all clusters at once, then the largest of each look."""
    joined = _Joined(index)
    for i in index:
        joined.join(i, node.neighbourhood(seed(i).nodes, 1))
    clusters = [part for part in joined.parts() if len(part) >= _FEWEST]
    clusters.sort(key=lambda part: (-len(part), part[0]))
    whole = [sorted(i for part in clusters for i in part)] if len(clusters) > 1 else []
    looks = {tuple(sorted(round(float(raw.delta_ms[i]), 9) for i in part)): part for part in reversed(clusters)}
    return [*whole, *list(looks.values())[::-1][:MOST_CLUSTERS]]


def _alike(node: SearchNode, raw: Any, index: Sequence[int], seed: Any) -> list[list[int]]:
    """The regions of a bundle's seeds, those that look alike together; none where there is one kind only."""
    joined = _Joined(index)
    for i in index:
        joined.join(i, _region(node.graph, seed(i).nodes))
    delta, added = np.asarray(raw.delta_ms), np.asarray(raw.nodes_added)
    kinds: dict[Any, list[int]] = defaultdict(list)
    for part in joined.parts():
        look = tuple(sorted((int(raw.rule[i]), round(float(delta[i]), 9), int(added[i])) for i in part))
        kinds[look].extend(part)
    return sorted(kinds.values(), key=lambda part: (-len(part), part[0]))[:MOST_CLASSES] if len(kinds) > 1 else []


def _region(graph: Any, nodes: Iterable[int]) -> set[int]:
    """The nodes, and what follows them through pointwise operators that join no two streams."""
    found = set(nodes)
    edge = list(found)
    for _ in range(_REACH):
        edge = [
            user
            for node in edge
            for value in graph.node_outputs(node)
            for user, _ in graph.users(value)
            if user not in found
        ]
        found.update(edge)
        edge = [user for user in dict.fromkeys(edge) if _passes(graph, user, found)]
        if not edge:
            break
    return found


def _passes(graph: Any, node: int, found: set[int]) -> bool:
    """Whether a region goes on behind ``node``: a pointwise operator that reads nothing from outside but constants."""
    if graph.op(node) not in members("unary") and graph.op(node) not in members("binary"):
        return False
    producers = [graph.producer(value) for value in graph.node_inputs(node) if value >= 0]
    return all(graph.is_const(producer) or producer in found for producer in producers)


class _Joined:
    """Sets of moves that share nodes."""

    def __init__(self, index: Sequence[int]) -> None:
        self._parent = {i: i for i in index}
        self._owner: dict[int, int] = {}

    def _top(self, i: int) -> int:
        while self._parent[i] != i:
            self._parent[i] = i = self._parent[self._parent[i]]
        return i

    def join(self, i: int, nodes: Iterable[int]) -> None:
        """Move ``i`` has ``nodes``."""
        for node in nodes:
            other = self._owner.setdefault(node, i)
            a, b = self._top(i), self._top(other)
            self._parent[max(a, b)] = min(a, b)

    def parts(self) -> list[list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for i in self._parent:
            found[self._top(i)].append(i)
        return list(found.values())


def _counts(before: Any, after: Any) -> tuple[int, int, int, int]:
    """Working nodes and edges that ``after`` has more than ``before``, and those that it lacks."""
    fresh = [node for node in after.nodes_from(before.id_limit) if _works(after, node)]
    gone = [node for node in before.order() if not after.alive(node) and _works(before, node)]
    return len(fresh), len(gone), _edges(after, fresh), _edges(before, gone)


def _works(graph: Any, node: int) -> bool:
    return not graph.is_const(node) and graph.op(node) != "Input"


def _edges(graph: Any, nodes: Iterable[int]) -> int:
    values = (value for node in nodes for value in graph.node_inputs(node) if value >= 0)
    return sum(not graph.is_const(graph.producer(value)) for value in values)
