"""Draws concrete graphs in which a rule may fire.

From the rule's source term a graph is built node by node with the core's builder: shapes and attributes are drawn at
random from each operator's
domain (ranks 0 to 5, extents 1 to 4 with 1 over-represented and a few large ones, broadcasting operands, groups,
strides, dilations, pads, permutations, coinciding variables, everything also at the statement's own numbers and beside
them; see :mod:`boundaries`), by the rule's hints on some samples and without them on the others. Draws that are
ill-typed are given up; whether the rule fires is for the core to say.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace
from typing import Any

from rlflow import _core
from rlflow.errors import GraphError
from rlflow.synthesis import operators
from rlflow.synthesis.drawn_attributes import AttributeDraw
from rlflow.synthesis.drawn_numbers import F32, elements_of
from rlflow.synthesis.hints import SamplingHints
from rlflow.synthesis.operators.facets import DRAWN_FLOATS
from rlflow.synthesis.terms import Term
from rlflow.synthesis.want import ANY, GiveUp, Want

_INPUT = re.compile(r"(: \w+)\[([^\]]+)\] = input")


@dataclass
class Sample:
    """A drawn graph. ``index_inputs``: ordinal of an integer input -> its values lie below this. ``symbols``: value
    of each symbolic dim. ``dtype``: the element type that was asked for, or 0."""

    graph: _core.Graph
    index_inputs: dict[int, int]
    symbols: dict[str, int] = field(default_factory=dict)
    wild: bool = True
    dtype: int = 0


class Draw(AttributeDraw):
    """One attempt at a graph. Public methods are for the samplers in :mod:`operators`."""

    # ---- terms

    def is_known(self, term: Term) -> bool:
        """Whether the operand exists before its siblings say what it should be."""
        if term.kind == "var":
            return term.name in self.values
        return term.kind == "op" or (term.kind == "seq" and self.local is not None and term.name in self.local)

    def child(self, term: Term, want: Want = ANY) -> int:
        """The value of a child term, built or drawn on the way; -1 for an absent operand."""
        if term.kind == "absent":
            return -1
        if term.kind == "op":
            return self.node(term, want)
        table = self.values
        if term.kind == "seq":
            if self.local is None:
                raise GiveUp
            table = self.local
        if term.name not in table:
            table[term.name] = self.fresh(term.name, want)
        return table[term.name]

    def spread(self, term: Term, want: Want, least: int = 1) -> list[int]:
        """The values of a sequence variable among the operands of an n-ary operator."""
        if self.local is not None:
            return [self.child(term, want)]
        if term.name not in self.members:
            self.members[term.name] = [self.fresh(term.name, want) for _ in range(self.count(range(least, 4)))]
        return self.members[term.name]

    def node(self, term: Term, want: Want = ANY) -> int:
        """Builds the node of an operator term and everything below it; the output that the term picks."""
        op, carried, extra = self._operator(term, want)
        inputs, attrs = operators.draw(self, term, op, want)
        if term.carries:
            if carried is None:
                extra = operators.extra_operands(self, op)
                carried = attrs
                self.ops[term.op_var] = (op, attrs, extra)
            attrs, inputs = carried, inputs + extra
        if not operators.valid_type(op, self.dtype_of(inputs[0])):
            raise GiveUp
        first = self.builder.add(op, attrs, inputs, 0)
        if op == "Split":
            self.parts[first] = len(attrs["split"])
        picked = term.output
        if isinstance(picked, str):
            picked = self.attrs.setdefault(picked, self.rng.randrange(self.parts.get(first, 1)))
        v = first + int(picked)
        shape = self.builder.shape(v)
        if shape is None or any(not isinstance(d, int) for d in shape) or elements_of(shape) > 4000:
            raise GiveUp
        self.inner.append(v)
        return v

    def _operator(self, term: Term, want: Want) -> tuple[str, dict[str, Any] | None, list[int]]:
        if not term.op_var:
            return term.op, None, []
        if term.op_var in self.ops:
            op, attrs, extra = self.ops[term.op_var]
            return op, attrs if term.carries else None, extra
        hinted = (self.hint or {}).get(term.op_var)
        dtype = want.dtype if want.dtype is not None else self.dtype
        choices = hinted if isinstance(hinted, list) else operators.class_members(term.op_class, dtype)
        op = self.rng.choice(choices)
        if not term.carries:
            self.ops[term.op_var] = (op, {}, [])
        return op, None, []

    # ---- graphs

    def sample(self) -> Sample:
        """The whole graph: all roots, some inner values as outputs too, sometimes a stranger among the users."""
        roots: list[int] = []
        for root in self.hints.roots:
            if roots and self.mixed:  # roots without a common variable need not be of one type
                self.dtype = self.rng.choice(sorted(DRAWN_FLOATS)) if self.dtype == F32 else F32
            roots += self._star(root) if root.star else [self.node(root)]
        outputs = list(dict.fromkeys(roots))
        for first in list(outputs):
            outputs += [v for v in self._other_outputs(first) if v not in outputs]
        if self.rng.random() < 0.2 and self.inner:
            outputs.append(self.rng.choice(self.inner))
        if self.rng.random() < 0.1 and self.inner:
            v = self.rng.choice(self.inner)
            if self.dtype_of(v) in DRAWN_FLOATS:
                outputs.append(self.builder.add("Sigmoid", {}, [v], 0))
        graph = self.builder.finish(list(dict.fromkeys(outputs)))
        return Sample(graph, self.index_inputs, wild=self.strayed, dtype=self.asked)

    def _other_outputs(self, first: int) -> list[int]:
        return [first + k for k in range(1, self.parts.get(first, 1))]

    def _star(self, root: Term) -> list[int]:
        out = []
        for _ in range(self.count((2, 3))):
            self.local = {}
            out.append(self.node(replace(root, star=False)))
        self.local = None
        return out


def draw_sample(
    hints: SamplingHints, rng: random.Random, *, largest: int = 4, stray: bool = False, dtype: int = 0
) -> Sample | None:
    """One graph, or ``None`` where the draw came to nothing. ``stray``: rather beside the hints than by them.
    ``dtype``: the element type of what has none by its operators, its hint or its conditions; 0: any."""
    try:
        sample = Draw(hints, rng, largest=largest, stray=stray, dtype=dtype).sample()
    except (GiveUp, GraphError, ArithmeticError, LookupError, TypeError, ValueError):
        return None  # attributes that were bound at one rank do not fit another
    return _with_symbols(sample, rng) if rng.random() < 0.12 else sample


def _with_symbols(sample: Sample, rng: random.Random) -> Sample | None:
    """The same graph with some input extents given by name only; ``None`` where the core finds a contradiction in
    that."""
    symbols: dict[str, int] = {}

    def rename(m: re.Match[str]) -> str:
        dims = []
        for d in m.group(2).split(","):
            if d.strip().isdigit() and rng.random() < 0.4:
                name = f"N{d.strip()}" if rng.random() < 0.5 else f"M{len(symbols)}"
                symbols[name] = int(d)
                dims.append(name)
            else:
                dims.append(d)
        return f"{m.group(1)}[{','.join(dims)}] = input"

    text = _INPUT.sub(rename, sample.graph.text())
    try:
        return replace(sample, graph=_core.Graph.parse(text), symbols=symbols)
    except GraphError:
        return None
