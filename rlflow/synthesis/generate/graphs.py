"""Terms: the enumerator's graphs as Python values, as core graphs, and in a form that renaming does not change."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from rlflow import _core
from rlflow.errors import GraphError
from rlflow.synthesis.generate import kinds
from rlflow.synthesis.generate.vocabulary import Group, InputFamily
from rlflow.synthesis.operators import flags_of

F32 = 1
RECORD = np.dtype(
    [
        ("print", "<u8", 2),
        ("step", "u1", (5, 4)),
        ("ops", "u1"),
        ("root", "u1"),
        ("canonical", "u1"),
        ("size", "u1"),
    ]
)
PAIR = np.dtype([("left", RECORD), ("right", RECORD), ("second", RECORD), ("two_outputs", "<u8")])


class Node(NamedTuple):
    """An operator template (by number) over operands: inputs (by number) or nodes; ``output`` of a Split."""

    op: int
    operands: tuple[Expression, ...]
    output: int = 0


Expression = int | Node


@dataclass(frozen=True)
class Equation:
    """``left`` and ``right`` compute the same: one output each, or two."""

    left: tuple[Expression, ...]
    right: tuple[Expression, ...]

    @property
    def ops(self) -> int:
        """Operators on both sides."""
        return len(operators(self.left)) + len(operators(self.right))


def decode(record: Any, group: Group) -> Expression:
    """The term of one enumerated graph."""
    inputs = len(group.inputs)
    made: list[Expression] = []
    for step in record["step"][: int(record["ops"])]:
        operator = group.operators[int(step[0])]
        arity = kinds.of(operator.op, operator.concrete(group.worlds[0])).arity
        operands = tuple(int(v) if v < inputs else made[int(v) - inputs] for v in step[1 : 1 + arity])
        made += [Node(int(step[0]), operands, 0), Node(int(step[0]), operands, 1)]
    root = int(record["root"])
    return root if root < inputs else made[root - inputs]


def decode_pairs(raw: bytes, group: Group) -> list[Equation]:
    """The equations that the native core found."""
    out = []
    for pair in np.frombuffer(raw, PAIR):
        left, right = decode(pair["left"], group), decode(pair["right"], group)
        if pair["two_outputs"]:
            assert isinstance(left, Node)
            out.append(Equation((left, left._replace(output=1)), (right, decode(pair["second"], group))))
        else:
            out.append(Equation((left,), (right,)))
    return out


def leaves(terms: Sequence[Expression]) -> list[int]:
    """Inputs in order of first use, from left to right."""
    seen: dict[int, None] = {}

    def visit(t: Expression) -> None:
        if isinstance(t, int):
            seen.setdefault(t)
        else:
            for child in t.operands:
                visit(child)

    for t in terms:
        visit(t)
    return list(seen)


def operators(terms: Sequence[Expression]) -> list[Node]:
    """The distinct operators (a Split counts once), operands first."""
    seen: dict[Node, None] = {}

    def visit(t: Expression) -> None:
        if isinstance(t, int):
            return
        for child in t.operands:
            visit(child)
        seen.setdefault(t._replace(output=0))

    for t in terms:
        visit(t)
    return list(seen)


def tree_size(terms: Sequence[Expression]) -> int:
    """Operators, each counted as often as it is read."""
    return sum(1 + tree_size(t.operands) for t in terms if not isinstance(t, int))


class Canon:
    """Canonical texts of the equations of one group: equal for equations that differ in names and in the order of
    commutative operands.

    Inputs are told apart by nothing but where they occur: a rule's variables have no families.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self.commutative = [kinds.of(o.op, o.concrete(group.worlds[0])).commutative for o in group.operators]
        self.derived = {k: f.name for k, (_, f) in enumerate(group.inputs) if f.derived}
        self.marks = {k: _mark(f) for k, (_, f) in enumerate(group.inputs)}

    def text(self, terms: Sequence[Expression], names: dict[int, str]) -> str:
        """Terms with inputs named, commutative operands in order of their texts."""
        return " ; ".join(self._text(t, names) for t in terms)

    def _text(self, t: Expression, names: dict[int, str]) -> str:
        if isinstance(t, int):
            return names[t]
        parts = [self._text(c, names) for c in t.operands]
        if self.commutative[t.op]:
            parts.sort()
        suffix = f".{t.output}" if t.output else ""
        return f"{self.group.operators[t.op].name}({','.join(parts)}){suffix}"

    def equation(self, e: Equation) -> str:
        """The canonical text of an equation, whichever way round it is written."""
        inputs = sorted(set(leaves((*e.left, *e.right))))
        best = ""
        for names in self._namings(inputs):
            a, b = self.text(e.left, names), self.text(e.right, names)
            text = f"{min(a, b)} = {max(a, b)}"
            best = text if not best or text < best else best
        return best

    def _namings(self, inputs: list[int]) -> Iterator[dict[int, str]]:
        fixed = {k: self.derived[k] for k in inputs if k in self.derived}
        free = [k for k in inputs if k not in self.derived]
        if (
            len(free) > 4
        ):  # 120 namings and more: what only other families' names tell apart is left to the search for derivations
            yield {**fixed, **{k: self.group.inputs[k][0] for k in free}}
            return
        for order in itertools.permutations(range(len(free))):
            yield {**fixed, **{k: f"{self.marks[k]}{n}" for k, n in zip(free, order, strict=True)}}


def _mark(family: InputFamily) -> str:
    return ("p" if family.positive else "c" if family.constant else "v") + ("s" if not family.shape else "")


# ---- core graphs ----------------------------------------------------------------------------------------------------


class Instances:
    """Core graphs of terms over a group's inputs, with the extents of one world."""

    def __init__(self, group: Group, world: int = 0) -> None:
        self.group = group
        self.world = group.worlds[world]

    def graph(self, terms: Sequence[Expression], inputs: Sequence[int]) -> _core.Graph:
        """The graph that computes ``terms`` and has these inputs. Raises GraphError where the core finds it
        ill-typed."""
        b = _core.GraphBuilder()
        values: dict[Expression, int] = {}
        for k in inputs:
            values[k] = self._leaf(b, k)
        return b.finish([self._build(b, t, values) for t in terms])

    def _leaf(self, b: _core.GraphBuilder, k: int) -> int:
        name, family = self.group.inputs[k]
        shape = family.extents(self.world)
        if not family.constant and not family.positive:
            return b.input(name, F32, shape)
        count = kinds.count(shape)
        values = [1.0 + k + 0.25 * j if family.positive else -2.0 + 0.75 * (j + k) for j in range(count)]
        return b.constant(F32, shape, f"{k + 1:032x}", values)

    def _build(self, b: _core.GraphBuilder, t: Expression, values: dict[Expression, int]) -> int:
        if t in values:
            return values[t]
        if isinstance(t, int):
            family = self.group.inputs[t][1]
            index = {name: k for k, (name, _) in enumerate(self.group.inputs)}
            values[t] = self._derived(b, family.derived, index, values)
            return values[t]
        operator = self.group.operators[t.op]
        operands = [self._build(b, c, values) for c in t.operands]
        attributes = operator.concrete(self.world)
        if operator.op != "Split":
            values[t] = b.add(operator.op, attributes, operands)
            return values[t]
        half = b.shape(operands[0])[attributes["axis"]] // 2
        first = b.add("Split", {**attributes, "split": [half, half]}, operands, 2)
        for k in (0, 1):
            values[t._replace(output=k)] = first + k
        return values[t]

    def _derived(self, b: _core.GraphBuilder, term: Any, index: dict[str, int], values: dict[Expression, int]) -> int:
        if isinstance(term, str):
            if index[term] not in values:
                raise GraphError(f"the derived input needs '{term}', which is not among the graph's inputs")
            return values[index[term]]
        operands = [self._derived(b, c, index, values) for c in term[1:]]
        template = {o.name: o for o in self.group.operators}.get(term[0])
        return b.add(template.op, template.concrete(self.world), operands) if template else b.add(term[0], {}, operands)


@dataclass(frozen=True)
class Shape:
    """A core graph seen apart from the order of its commutative operands."""

    graph: _core.Graph

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """Equal for graphs that differ in that order only."""
        g = self.graph
        keys: dict[int, int] = {}
        for n in g.order():
            operands = [keys.get(v, v) for v in g.node_inputs(n)]
            op = g.op(n)
            swaps = "commutative" in flags_of(op)
            if swaps:
                operands.sort()
            attributes = "" if swaps else str(sorted(g.attrs(n).items()))
            name = g.input_name(n) if op == "Input" else g.const_digest(n) if op == "Constant" else ""
            for k, v in enumerate(g.node_outputs(n)):
                keys[v] = hash((op, attributes, name, tuple(operands), k))
        return tuple(keys[v] for v in g.outputs())
