"""From an equation over concrete shapes to statements of rules: which attributes are variables, and under which
conditions.

A statement has *slots*: the attributes of a template, which the source may bind (``Conv{..?a}``) instead of
demanding them, and
*conditions* that hold for every graph of the vocabulary. The most special statement, no slot bound and every
condition demanded, says
what was seen; the most general one, all slots bound and no condition, is what one hopes for. :mod:`generalise` looks
between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rlflow.rewrite import Rule
from rlflow.synthesis.field import key_of
from rlflow.synthesis.generate.graphs import Expression, Node, leaves, operators
from rlflow.synthesis.generate.written import ALONG_AXIS, StatementText, derived_leaves, literal

_EXACT = frozenset(
    {"Concat", "Split", "Transpose", "Slice", "Pad", "Relu", "Max", "Min", "Resize", "MaxPool", "Neg", "ReduceMax"}
)
#: Attribute values worth a condition of their own.
_NEUTRAL: dict[str, list[Any]] = {
    "group": [1],
    "pads": [[0, 0, 0, 0]],
    "strides": [[1, 1]],
    "kernel_shape": [[1, 1]],
    "count_include_pad": [0, 1],
    "keepdims": [0, 1],
    "mode": ["constant"],
    "value": [0.0],
}


@dataclass(frozen=True)
class Statement(StatementText):
    """An equation with the conditions under which it was seen, and the rules that may be made of it."""

    @property
    def refusal(self) -> str:
        """Why this direction of an equation is no rule; empty where it is one."""
        if any(isinstance(t, int) for t in self.source):
            return "a source that is a bare variable"
        bound = set(leaves(self.source))
        if any(self._family(k).derived for k in bound):
            return "a source with a derived constant"
        index = {name: k for k, (name, _) in enumerate(self.group.inputs)}
        for k in leaves(self.target):
            needed = [index[n] for n in derived_leaves(self._family(k).derived)] or [k]
            if not bound.issuperset(needed):
                return "a target with an unbound variable"
        if any(isinstance(t, Node) and self._operator(t).op == "Split" for t in self.source):
            return "a source that ends in a Split: a term has one output, or all of a sequence"
        if self.grows:
            return "a target that wraps its own source"
        splits = {n.op for n in operators(self.source) if self._operator(n).op == "Split"}
        for n in operators(self.target):
            if self._operator(n).op == "Split" and n.op not in splits and not self._at_root(n):
                return "a Split in the target whose sizes the source does not tell"
        return ""

    # ---- conditions

    @cached_property
    def signs(self) -> list[str]:
        """Conditions that no shape says: constants and their signs, Splits in two."""
        out = []
        for k in self._own():
            family = self._family(k)
            out += [f"constant({self.names[k]})"] if family.constant or family.positive else []
            out += [f"min_of({self.names[k]}) > 0"] if family.positive else []
        return [*out, *self._types, *(f"len(?s{axis}) == 2" for axis in self._split_axes())]

    @property
    def _types(self) -> list[str]:
        """Two sources without a common variable are of one element type where their results are joined."""
        sides = [set(leaves((t,))) for t in self.source]
        if len(sides) < 2 or sides[0] & sides[1]:
            return []
        a, b = (self.names[min(side, key=self.inputs.index)] for side in sides)
        return [f"dtype({a}) == dtype({b})"]

    def _split_axes(self) -> list[int]:
        splits = [self._operator(n) for n in operators(self.source)]
        return sorted({o.attributes["axis"] for o in splits if o.op == "Split"})

    @cached_property
    def equal_shapes(self) -> list[str]:
        """Inputs of one shape, each tied to the one before it; halves of a Split."""
        out = [_same(self.names[k], self.names[other]) for k, other in self._alike()]
        return out + [f"?s{axis}[0] == ?s{axis}[1]" for axis in self._split_axes()]

    @cached_property
    def axes_of(self) -> dict[str, list[str]]:
        """For each condition of :attr:`equal_shapes` on two inputs, the equalities of their extents."""
        return {_same(self.names[k], self.names[other]): self._equal(k, other) for k, other in self._alike()}

    def _equal(self, k: int, other: int) -> list[str]:
        pairs = enumerate(zip(self._family(k).shape, self._family(other).shape, strict=False))
        places = [i for i, (m, n) in pairs if m == n]
        return [f"dim({self.names[k]}, {i}) == dim({self.names[other]}, {i})" for i in places]

    def axis_conditions(self) -> tuple[list[str], list[str]]:
        """The ranks of all inputs, and all equalities between extents along one axis of two inputs, of one family or
        not: more than are needed, those of far inputs last."""
        own = [k for k in self._own() if self._family(k).shape]
        pairs = [(j - i, own[i], own[j]) for j in range(len(own)) for i in range(j)]
        extents = [c for _, k, other in sorted(pairs) for c in self._equal(k, other)]
        return [c for c in self.ranks if not c.endswith("== 0")], extents

    def _alike(self) -> list[tuple[int, int]]:
        """Inputs of one shape, each with the one before it."""
        last: dict[tuple[Any, ...], int] = {}
        out = []
        for k in self._own():
            shape = self._family(k).shape
            if shape and shape in last:
                out.append((last[shape], k))
            last[shape] = k
        return out

    @cached_property
    def ranks(self) -> list[str]:
        return [f"rank({self.names[k]}) == {len(self._family(k).shape)}" for k in self._own()]

    @cached_property
    def extents(self) -> list[str]:
        """Extents that are numbers, and those that occur at several places."""
        seen: dict[str, str] = {}
        shapes: set[tuple[Any, ...]] = set()
        out = []
        for k in self._own():
            shape = self._family(k).shape
            for axis, d in enumerate(shape):
                place = f"dim({self.names[k]}, {axis})"
                if isinstance(d, int):
                    out.append(f"{place} == {d}")
                elif d in seen and shape not in shapes:
                    out.append(f"{place} == {seen[d]}")
                seen.setdefault(str(d), place)
            shapes.add(shape)
        return out

    def attribute_values(self, bound: Iterable[str]) -> list[str]:
        """What the bound attributes of windows and the like are in the vocabulary, where it is a usual special
        case."""
        out = []
        for n in operators(self.source):
            o = self._operator(n)
            for name, value in sorted(o.attributes.items()) if o.base in bound else ():
                if name in _NEUTRAL and value in _NEUTRAL[name] and name not in self._varying[o.base]:
                    number = value[0] if isinstance(value, list) else value
                    out.append(f'attr({self._slot_variable(o.base)}, "{name}") == {literal(number)}')
        return list(dict.fromkeys(out))

    # ---- rules

    @property
    def key(self) -> str:
        """The statement as it was seen: equal keys, equal outcomes."""
        conditions = [*self.signs, *self.ranks, *self.equal_shapes, *self.extents]
        return f"{self.group.name}: {self.text} where {' and '.join(conditions)}"

    @property
    def text(self) -> str:
        """The statement with no attribute bound, without its conditions."""
        sides = [[self._text(t, (), False) for t in self.source], self._target(())]
        return " => ".join(" ; ".join(side) for side in sides)

    @property
    def grows(self) -> bool:
        """Whether the target merely wraps the source: a rule that would fire on its own result forever."""
        inside = {c for n in operators(self.target) for c in n.operands}
        return any(t in inside for t in self.source)

    @property
    def exact(self) -> bool:
        """Whether both sides do the same float operations: they only move and compare."""
        return all(self._operator(n).op in _EXACT for n in operators((*self.source, *self.target)))

    def rule(self, bound: Iterable[str], where: Sequence[str], family: str = "generated") -> Rule:
        """The rule with these slots bound, under these conditions."""
        bound = set(bound)
        source = tuple(self._text(t, bound, False) for t in self.source)
        target = tuple(self._target(bound))
        where = (*where, "not constant($0)")
        digest = f"{key_of(source, target, where):016x}"[:6]
        return Rule(
            name=f"{self.title}-{digest}",
            family=family,
            doc=self.doc,
            source=source,
            target=target,
            where=where,
            numerics="exact" if self.exact else "reassociates",
            origin="generated",
            samples=(self.sample(bound),),
        )

    @property
    def doc(self) -> str:
        """``Relu(Concat(x, y)) = Concat(Relu(x), Relu(y)).``"""
        return " = ".join(", ".join(self._plain(t) for t in side) for side in (self.source, self.target)) + "."

    def _plain(self, t: Expression) -> str:
        if isinstance(t, int):
            words = self.names[t] if t in self.names else self._derived(self._family(t).derived, ())
            return words.replace("?", "")
        o = self._operator(t)
        output = f"[{t.output}]" if o.op == "Split" else ""
        return f"{o.op}({', '.join(self._plain(c) for c in t.operands)}){output}"

    @property
    def title(self) -> str:
        """``relu-mul-to-mul-relu``: the operators from the root on."""
        sides = []
        for terms in (self.source, self.target):
            ops = [self._operator(n).op.lower() for n in reversed(operators(terms))]
            sides.append("-".join(ops) or "operand")
        return "-to-".join(sides)

    def sample(self, bound: Iterable[str]) -> dict[str, Any]:
        """The vocabulary's shapes and attributes as hints for the prover."""
        out: dict[str, Any] = {}
        for k in self._own():
            text = ",".join(str(d) for d in self._family(k).shape)
            out[self.names[k]] = f"f32[{text}]"
        for n in operators(self.source):
            o = self._operator(n)
            if o.op in ALONG_AXIS:
                slot = f"axis {o.attributes['axis']}"
                if slot in bound:
                    out[self._slot_variable(slot)] = o.attributes["axis"]
                if o.op == "Split":
                    out[f"?s{o.attributes['axis']}"] = {"choose": self._halves(o.attributes["axis"])}
            elif o.base in bound:
                out[self._slot_variable(o.base)] = {
                    k: f"={v}" if isinstance(v, str) and v.isupper() else v
                    for k, v in o.attributes.items()
                    if k not in self._varying[o.base]
                }
        return out

    def _halves(self, axis: int) -> list[str]:
        """Sizes of a Split in two, in letters of the inputs' extents along the axis."""
        shapes = [self._family(k).shape for k in self._own()]
        letters = dict.fromkeys(str(shape[axis]) for shape in shapes if len(shape) > axis)
        return [f"[{times}{d},{times}{d}]" for d in letters for times in ("", "2*")]


def _same(a: str, b: str) -> str:
    return f"same_shape({a}, {b})"
