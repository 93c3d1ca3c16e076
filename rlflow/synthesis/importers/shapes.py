"""Shapes of a foreign rule's terms in symbols, what its source says of them, and what its target asks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rlflow.synthesis.importers.building import ELEMENTWISE, PLAIN, REDUCTIONS, Inexpressible, permutation
from rlflow.synthesis.importers.foreign import OUTPUT, SAME, VARIABLE, ForeignRule, ForeignTerm
from rlflow.synthesis.importers.instances import Reading, ranks_of
from rlflow.synthesis.importers.symbols import Dims, Equalities, Extent

_WRITTEN_OUT = frozenset({"enlarge", "Iconv", "Cpool"})
CONSTANTS = frozenset({"Iconv", "Cpool", "Imatmul", "Iewmul"})


@dataclass
class Window:
    """The attributes of a convolution or pool of the source, as they are written: all convolutions that meet in one
    of the target have the same."""

    name: str
    term: ForeignTerm
    weights: frozenset[str]


@dataclass
class Symbols:
    """A rule whose terms have shapes in symbols. ``known``: equal extents; ``extra``: conditions beside those."""

    rule: ForeignRule
    reading: Reading
    known: Equalities = field(default_factory=Equalities)
    extra: list[str] = field(default_factory=list)
    windows: dict[ForeignTerm, Window] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ranks = ranks_of(self.rule)
        self.written_out = any(t.op in _WRITTEN_OUT for t in self.rule.operators())
        self._name_windows()
        for term in self.rule.operators(source_only=True):
            self._learn(term)

    # ---- names

    def variable(self, name: str) -> str:
        return "?" + re.sub(r"\W", "_", name.replace("input_", "i"))

    def _name_windows(self) -> None:
        convs = [t for t in self.rule.operators(source_only=True) if t.op == "conv2d"]
        groups = {t: k for k, t in enumerate(convs)}
        for target in (t for t in dict.fromkeys(x for s in self.rule.targets for x in s.walk()) if t.op == "conv2d"):
            met = [t for t in convs if weights_of(t) & weights_of(target)]
            if not met:
                raise Inexpressible("a convolution of the target has weights that no convolution of the source has")
            if not self.written_out:
                for t in met[1:]:
                    groups = {u: groups[met[0]] if g == groups[t] else g for u, g in groups.items()}
        for t in convs:
            self.windows[t] = Window(str(groups[t]), t, weights_of(t))
        for members in ([t for t in convs if groups[t] == g] for g in set(groups.values())):
            if len({t.parameters[:3] for t in members}) > 1:
                raise Inexpressible("convolutions of different strides or padding become one")

    # ---- shapes

    def dims(self, term: ForeignTerm) -> Dims:
        """The shape of a term in symbols; None where its rank is not known."""
        if term.op == VARIABLE:
            rank = self.ranks.get(term.name)
            return None if rank is None else tuple(("dim", self.variable(term.name), k) for k in range(rank))
        shapes = [self.dims(t) for t in term.operands]
        first = shapes[0] if shapes else None
        if term.op == "concat":
            axis = term.number("axis")
            if any(s is None or axis >= len(s) for s in shapes):
                return None
            total: Extent = ("sum", tuple(s[axis] for s in shapes if s is not None))
            return (*(first or ())[:axis], total, *(first or ())[axis + 1 :])
        if term.op == "matmul":
            second = shapes[1]
            return None if first is None or second is None or not second else (*first[:-1], second[-1])
        if term.op == "conv2d":
            return self._conv_dims(term, first, shapes[1])
        if term.op == "transpose":
            return None if first is None else tuple(first[a] for a in permutation(term))
        if term.op == "enlarge":
            to = [("one", term.number(n, 1)) for n in ("kernel_h", "kernel_w")]
            return None if first is None else (*first[:2], *to)
        if term.op in ("poolmax", "poolavg"):
            windows = tuple(("window", str(term.parameters), d, ()) for d in (first or ())[2:])
            return None if first is None else (*first[:2], *windows)
        if term.op in (OUTPUT, "split") or term.op in REDUCTIONS or term.op in ("squeeze", "unsqueeze", *CONSTANTS):
            return None
        return next((s for s in shapes if s is not None), None)

    def _conv_dims(self, term: ForeignTerm, image: Dims, weight: Dims) -> Dims:
        if image is None or weight is None or len(image) != 4 or len(weight) != 4:
            return None
        if term.number("pad") == SAME and self.written_out and term.number("stride_h", 1) == 1:
            return (image[0], weight[0], *image[2:])
        name = self._window_of(term).name
        return (image[0], weight[0], *(("window", name, image[k], weight[k]) for k in (2, 3)))

    def _window_of(self, term: ForeignTerm) -> Window:
        if term in self.windows:
            return self.windows[term]
        met = [w for w in self.windows.values() if w.weights & weights_of(term)]
        return met[0]

    # ---- what a match tells, and what must be asked

    def _learn(self, term: ForeignTerm) -> None:
        shapes = [self.dims(t) for t in term.operands]
        if term.op == "concat":
            for other in shapes[1:]:
                self.known.assume_shapes(shapes[0], other, term.number("axis"))
        elif term.op in ELEMENTWISE and self.reading.equal_shapes:
            self._ask_equal(term)
        elif term.op == "matmul":
            self._ask_ranks(term)
            if shapes[0] and shapes[1]:
                self.known.assume(shapes[0][-1], shapes[1][-2])
                self.known.assume_shapes(shapes[0][:-2], shapes[1][:-2])
        elif term.op == "conv2d" and not self.reading.groups and shapes[0] and shapes[1]:
            self.known.assume(shapes[0][1], shapes[1][1])

    def _ask_equal(self, term: ForeignTerm) -> None:
        a, b = term.operands
        if a.op == b.op == VARIABLE:
            if a != b:
                self.extra.append(f"same_shape({self.variable(a.name)}, {self.variable(b.name)})")
                self.known.assume_shapes(self.dims(a), self.dims(b))
            return
        if self.dims(a) is None or self.dims(b) is None:
            left, right = self._like(a), self._like(b)
            if left != right and left and right:
                self.extra.append(f"same_shape({left}, {right})")
            return
        self.known.demand_shapes(self.dims(a), self.dims(b))

    def _like(self, term: ForeignTerm) -> str:
        """A variable that has the term's shape, where elementwise operands have equal shapes."""
        if term.op == VARIABLE:
            return self.variable(term.name)
        return self._like(term.operands[0]) if term.op in PLAIN or term.op == "smul" else ""

    def _ask_ranks(self, term: ForeignTerm) -> None:
        shapes = [self.dims(t) for t in term.operands]
        if shapes[0] is not None and shapes[1] is not None:
            self.known.demand_shapes(shapes[0][:-2], shapes[1][:-2])
            return
        names = [self._ranked(t) for t in term.operands]
        for name in names:
            if name and name not in {self.variable(v) for v in self.ranks}:
                self.extra.append(f"rank({name}) >= 2")
        if names[0] and names[1] and names[0] != names[1]:
            self.extra.append(f"shape({names[0]})[:-2] == shape({names[1]})[:-2]")

    def _ranked(self, term: ForeignTerm) -> str:
        """A variable with the term's rank and batch."""
        if term.op == VARIABLE:
            return self.variable(term.name)
        return self._ranked(term.operands[0]) if term.operands else ""

    def _typed(self, term: ForeignTerm) -> None:
        """Conditions under which a node of the target is well-typed."""
        shapes = [self.dims(t) for t in term.operands]
        if term.op == "concat":
            for other in shapes[1:]:
                self.known.demand_shapes(shapes[0], other, term.number("axis"))
            self._ask_types(term)
        elif term.op in ELEMENTWISE and self.reading.equal_shapes:
            self.known.demand_shapes(shapes[0], shapes[1])
        elif term.op == "matmul" and shapes[0] and shapes[1]:
            self.known.demand(shapes[0][-1], shapes[1][-2])
            self.known.demand_shapes(shapes[0][:-2], shapes[1][:-2])

    def _ask_types(self, term: ForeignTerm) -> None:
        """Element types, where values of different roots are joined."""
        names = [next(t.name for t in operand.walk() if t.op == VARIABLE) for operand in term.operands]
        roots = [{t.name for t in s.walk() if t.op == VARIABLE} for s in self.rule.sources]
        for name in names[1:]:
            if not any({name, names[0]} <= root for root in roots):
                self.extra.append(f"dtype({self.variable(names[0])}) == dtype({self.variable(name)})")


def weights_of(term: ForeignTerm) -> frozenset[str]:
    return frozenset(t.name for t in term.operands[1].walk() if t.op == VARIABLE)
