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

import numpy as np

from rlflow import _core
from rlflow.errors import GraphError, RlflowError
from rlflow.synthesis import operands
from rlflow.synthesis.boundaries import LARGE_EXTENTS
from rlflow.synthesis.field import key_of
from rlflow.synthesis.integers import wrapped
from rlflow.synthesis.plan import Plan
from rlflow.synthesis.terms import Term, literal
from rlflow.synthesis.twins import Twins
from rlflow.synthesis.want import ANY, GiveUp, Want

F32, I64, BOOL = 1, 7, 9
DTYPES = {"f32": 1, "u8": 2, "i8": 3, "i32": 6, "i64": 7, "bool": 9, "f16": 10, "f64": 11, "bf16": 16}
_NAMES = {v: k for k, v in DTYPES.items()}
FLOATS = {1, 10, 11, 16}
_Type = tuple[int, tuple[int, ...], "str | None"]  # dtype, shape, and the element of a uniform constant


@dataclass
class Sample:
    """A drawn graph. ``index_inputs``: ordinal of an integer input -> its values lie below this. ``symbols``: value
    of each symbolic dim."""

    graph: _core.Graph
    index_inputs: dict[int, int]
    symbols: dict[str, int] = field(default_factory=dict)
    wild: bool = True


class Draw:
    """One attempt at a graph. Public methods are for :mod:`operands`."""

    def __init__(self, plan: Plan, rng: random.Random, *, largest: int = 4, stray: bool = False) -> None:
        self.plan = plan
        self.rng = rng
        self.largest = largest
        self.builder = _core.GraphBuilder()
        self.hint = rng.choice(plan.samples) if plan.samples and rng.random() < 0.6 else None
        self.obey = self.hint is not None or rng.random() < 0.75
        self.looseness = rng.choice([0.1, 0.2, 0.35]) if stray else 0.06
        self.dtype = self._any_dtype()
        self.mixed = len(plan.roots) > 1 and rng.random() < 0.15
        self.retyped = self.mixed or rng.random() < 0.06
        self.strayed = self.hint is None or self.retyped
        share = 0.5 if plan.boundaries.extents else 0.15
        self.large_left = 2 if rng.random() < share else 0  # a few large extents in some of the samples
        self.renumbered: dict[str, str] | None = {} if self.hint is not None and rng.random() < 0.25 else None
        self.twins = Twins(rng)
        self.values: dict[str, int] = {}
        self.members: dict[str, list[int]] = {}
        self.local: dict[str, int] | None = None
        self.attrs: dict[str, Any] = {}
        self.rests: dict[str, dict[str, Any]] = {}
        self.ops: dict[str, tuple[str, dict[str, Any], list[int]]] = {}
        self.letters: dict[str, int] = {}
        self.made: list[int] = []
        self.inner: list[int] = []
        self.index_inputs: dict[int, int] = {}
        self.inputs = 0
        self.parts: dict[int, int] = {}  # number of outputs of each Split, by its first one

    def _any_dtype(self) -> int:
        return self.rng.choices([1, 11, 10, 7], [88, 4, 3, 5])[0]

    # ---- numbers

    def extent(self) -> int:
        """An extent between 1 and ``largest``, 1 more often than the others; now and then a large one, or one at a
        boundary of the statement."""
        if self.large_left and self.rng.random() < 0.4:
            self.large_left -= 1
            near = self.plan.boundaries.extents
            return self.rng.choice(near if near and self.rng.random() < 0.8 else LARGE_EXTENTS)
        return 1 if self.rng.random() < 0.3 else self.rng.randint(2, self.largest)

    def dims(self, rank: int) -> tuple[int, ...]:
        shape = [self.extent() for _ in range(rank)]
        large = max(shape, default=1) > self.largest  # the others give way to it
        while _count(shape) > (2 * max(shape) if large else 160) and sorted(shape)[-2 if large else -1] > 1:
            shape[shape.index(sorted(shape)[-2 if large else -1])] -= 1
        return tuple(shape)

    def rank(self, least: int = 0) -> int:
        near = self.plan.boundaries.ranks
        if near and self.rng.random() < 0.15:
            return max(least, self.rng.choice(near))
        return max(least, self.rng.choices([0, 1, 2, 3, 4, 5], [4, 14, 28, 28, 20, 6])[0])

    def kernel(self, n: int) -> list[int]:
        """The extents of a window over ``n`` axes."""
        return self.rng.choice([[1] * n, [1] * n, [3] * n, [2] * n, [self.rng.randint(1, 3) for _ in range(n)]])

    def partner(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape that broadcasts with ``shape``."""
        way = self.rng.random()
        if way < 0.35:
            return shape
        if way < 0.45:
            return ()
        if way < 0.6:
            return shape[self.rng.randint(0, len(shape)) :]
        if way < 0.7:
            return (*self.dims(self.rng.randint(1, 2)), *shape)
        cut = shape[self.rng.randint(0, len(shape)) :] if self.rng.random() < 0.3 else shape
        keep = self.rng.random()
        return tuple(
            self.extent() if d == 1 and self.rng.random() < 0.3 else d if self.rng.random() < keep else 1 for d in cut
        )

    # ---- values

    def shape(self, v: int) -> tuple[int, ...]:
        return tuple(self.builder.shape(v))

    def dtype_of(self, v: int) -> int:
        return int(self.builder.dtype(v))

    def _letter(self, text: str) -> int:
        total = 1
        for part in text.split("*"):
            part = part.strip()
            total *= self._number(part) if part.isdigit() else self.letters.setdefault(part, self.extent())
        if self.rng.random() < self.looseness / 3:  # one place where what the hint ties together is not
            self.strayed = True
            return self.extent()
        return total

    def _number(self, digits: str) -> int:
        """A number of a hint: as it is, or in some samples another one, the same wherever it stands."""
        if self.renumbered is None:
            return int(digits)
        if digits not in self.renumbered:
            other = self.extent() if self.rng.random() < 0.5 else int(digits)
            self.strayed = self.strayed or other != int(digits)
            self.renumbered[digits] = str(other)
        return int(self.renumbered[digits])

    def _hint_for(self, name: str) -> Any:
        """The hint for a variable. Now and then one is disregarded, so that what lies beside the hints is seen too."""
        spec = (self.hint or {}).get(name)
        if spec is not None and self.rng.random() < self.looseness:
            self.strayed = True
            return None
        return spec

    def _hinted(self, name: str) -> _Type | None:
        spec = self._hint_for(name)
        if spec is None:
            return None
        m = re.fullmatch(r"(\w+)\[(.*)\](?: = (\S+))?", self.rng.choice(spec) if isinstance(spec, list) else spec)
        if not m:
            raise RlflowError(f'the sample hint {name}: {spec!r} is not a type such as "f32[A,B]" or "f32[] = 1"')
        dims = [d for d in m.group(2).split(",") if d.strip()]
        if self.local is not None:  # lower-case letters differ from member to member of a star group
            for d in dims:
                for part in d.split("*"):
                    if part.strip().islower():
                        self.letters.pop(part.strip(), None)
        dtype = DTYPES[m.group(1)]
        return self.dtype if self.retyped and dtype == F32 else dtype, tuple(self._letter(d) for d in dims), m.group(3)

    def fresh(self, name: str, want: Want) -> int:
        """A new value for the variable ``name``: an input, a constant, or now and then a value that exists already."""
        dtype, shape, elements = self._type_for(name, want)
        if elements is not None:
            near = self.plan.boundaries.values
            other = bool(near) and self.rng.random() < 0.25
            self.strayed = self.strayed or other
            return self.constant(name, dtype, shape, value=self.rng.choice(near) if other else float(elements))
        if self.rng.random() < 0.15 and name not in self.plan.constants:
            same = [v for v in self.made + self.inner if (self.dtype_of(v), self.shape(v)) == (dtype, shape)]
            if same:
                return self.rng.choice(same)
        is_constant = name in self.plan.constants or name in self.plan.valued or self.rng.random() < 0.08
        index = want.index_below
        if index is None and not is_constant:
            return self.input(dtype, shape)
        if not is_constant:
            v = self.input(dtype, shape)
            self.index_inputs[self.inputs - 1] = index or 1
            return v
        return self.constant(name, dtype, shape, index)

    def _type_for(self, name: str, want: Want) -> _Type:
        hinted = self._hinted(name)
        if hinted:
            return hinted
        dtype = want.dtype if want.dtype is not None else self.dtype
        if self.obey and name in self.plan.dtypes:
            dtype = DTYPES.get(self.rng.choice(self.plan.dtypes[name]), dtype)
        if self.obey and name in self.plan.scalars and self.rng.random() < 0.85:
            return dtype, self.rng.choice([(), (), (1,), (1, 1)]), None
        equal = [self.shape(self.values[n]) for n in self.plan.same.get(name, ()) if self.obey and n in self.values]
        if equal:
            return dtype, equal[0], None
        return dtype, self._related(name, self._free_shape(name, want)), None

    def _free_shape(self, name: str, want: Want) -> tuple[int, ...]:
        if want.shape is not None:
            return want.shape
        rank = want.rank
        if rank is None and self.obey and name in self.plan.ranks:
            rank = self.rng.choice(self.plan.ranks[name])
        return self.dims(self.rank(want.least_rank) if rank is None else rank)

    def _related(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape with the extents that the conditions tie to a number, or to a value that is there."""
        dims = list(shape)
        for i, other, j in self.plan.dims.get(name, ()) if self.obey else ():
            theirs = [] if isinstance(other, int) or other not in self.values else self.shape(self.values[other])
            if -len(dims) <= i < len(dims) and isinstance(other, int):
                dims[i] = other
            elif -len(dims) <= i < len(dims) and -len(theirs) <= j < len(theirs):
                dims[i] = theirs[j]
        return tuple(dims)

    def input(self, dtype: int, shape: tuple[int, ...]) -> int:
        v = self.builder.input(f"x{self.inputs}", dtype, list(shape))
        self.inputs += 1
        self.made.append(v)
        return v

    def constant(
        self, name: str, dtype: int, shape: tuple[int, ...], index_below: int | None = None, value: float | None = None
    ) -> int:
        """A constant; its elements are given where conditions may read them, else only its digest is."""
        count = _count(shape)
        values: list[Any] | None = None
        if value is not None:
            values = [value] * count
        elif index_below is not None:
            values = self._index_values(name, count, index_below)
        elif dtype not in FLOATS:
            values = self._integer_values(dtype, count)
        elif name in self.plan.valued or self.rng.random() < 0.1:
            values = self._float_values(count)
        digest = f"{key_of(self.rng.random(), name, 0):016x}{key_of(self.rng.random(), name, 1):016x}"
        v = self.builder.constant(dtype, list(shape), digest, values, None)
        self.made.append(v)
        return v

    def _index_values(self, name: str, count: int, below: int) -> list[int]:
        if below < 1:
            raise GiveUp
        if self.rng.random() < 0.4 and count <= below:
            first = self.rng.randint(0, below - count)
            return list(range(first, first + count))
        low = -below if self.rng.random() < 0.3 else 0
        return [self.rng.randint(low, below - 1) for _ in range(count)]

    def _integer_values(self, dtype: int, count: int) -> list[int]:
        if dtype == BOOL:
            return [self.rng.randint(0, 1) for _ in range(count)]
        pool = list(range(-3, 4))
        if self.rng.random() < 0.3:
            pool = [*self.plan.boundaries.integers, *pool]
        values = [self.rng.choice(pool) for _ in range(count)]
        return wrapped(np.array(values, np.int64), dtype).tolist()

    def _float_values(self, count: int) -> list[float]:
        way = self.rng.random()
        pool = [-2.0, -1.0, -0.5, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0] if way < 0.4 else [0.25, 0.5, 1.0, 1.5, 2.0, 3.0]
        if self.rng.random() < 0.2:
            pool = [0.0, 1.0]
        if self.plan.boundaries.values and self.rng.random() < 0.35:
            pool = list(self.plan.boundaries.values)
        if self.rng.random() < 0.4:
            return [self.rng.choice(pool)] * count
        return [self.rng.choice(pool) for _ in range(count)]

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
            self.members[term.name] = [self.fresh(term.name, want) for _ in range(self.rng.randint(least, 3))]
        return self.members[term.name]

    def attr(self, term: Term, op: str, name: str, drawn: Any) -> Any:
        """The attribute's value: bound before, literal, hinted, or what ``drawn()`` gives."""
        if name in term.attrs:
            return self._named_attr(term.attrs[name], drawn)
        if term.rest:
            return self._rest_attr(term.rest, name, drawn)
        default = operands.default_of(op, name)
        return drawn() if term.carries or default is None else default

    def _named_attr(self, text: str, drawn: Any) -> Any:
        if not text.startswith("?") or not re.fullmatch(r"\?\w+", text):
            value = literal(text)
            return drawn() if value is None else value
        if text not in self.attrs:
            self.attrs[text] = self._hinted_attr(text, lambda: self._beside(drawn()))
        return self.attrs[text]

    def _beside(self, value: Any) -> Any:
        """A drawn attribute; now and then at a boundary of the statement instead."""
        near = self.plan.boundaries.values
        if isinstance(value, bool) or not near or self.rng.random() > 0.12:
            return value
        if isinstance(value, float):  # the core keeps seven digits
            return self.rng.choice([v for v in near if float(f"{v:.7g}") == v])
        whole = [w for w in self.plan.boundaries.integers if abs(w) < 2000]
        if isinstance(value, int):
            return self.rng.choice(whole or [value])
        if isinstance(value, list) and value and whole and all(isinstance(v, int) for v in value):
            at = self.rng.randrange(len(value))
            return [*value[:at], self.rng.choice(whole), *value[at + 1 :]]
        return value

    def _hinted_attr(self, name: str, drawn: Any) -> Any:
        spec = self._hint_for(name)
        if spec is not None:
            return self._spelled(spec)
        known = [v for v in self.plan.attributes.get(name, []) if v is not None]
        value = drawn()
        if known and self.obey and self.rng.random() < 0.8:
            pick = self.rng.choice(known)
            if isinstance(value, list) and not isinstance(pick, list):
                return [pick] * len(value)
            return pick
        return value

    def _spelled(self, spec: Any) -> Any:
        """A hint's attribute: a value, a text "[A, B*C]" or "=G" of letters, or {"choose": [...]}."""
        if isinstance(spec, dict) and "choose" in spec:
            return self._spelled(self.rng.choice(spec["choose"]))
        if isinstance(spec, str) and spec.startswith("="):
            return self._letter(spec[1:])
        if isinstance(spec, str) and spec.startswith("["):
            return [
                int(d) if d.strip().lstrip("-").isdigit() else self._letter(d)
                for d in spec[1:-1].split(",")
                if d.strip()
            ]
        return spec

    def _rest_attr(self, rest: str, name: str, drawn: Any) -> Any:
        bound = self.rests.setdefault(rest, {})
        if name not in bound and self.twins.decides(rest, name, self.rests):
            bound[name] = self.twins.value(rest, name, self.rests)
        if name not in bound:
            hinted = self._hint_for(rest)
            if isinstance(hinted, dict) and name in hinted:
                bound[name] = self._spelled(hinted[name])
                return bound[name]
            value = self._beside(drawn())
            known = [v for v in self.plan.rest_attributes.get((rest, name), []) if v is not None]
            if known and self.obey and self.rng.random() < 0.85:
                pick = self.rng.choice(known)
                value = [pick] * len(value) if isinstance(value, list) and not isinstance(pick, list) else pick
            bound[name] = value
        return bound[name]

    def node(self, term: Term, want: Want = ANY) -> int:
        """Builds the node of an operator term and everything below it; the output that the term picks."""
        op, carried, extra = self._operator(term, want)
        inputs, attrs = operands.draw(self, term, op, want)
        if term.carries:
            if carried is None:
                extra = operands.extra_operands(self, op)
                carried = attrs
                self.ops[term.op_var] = (op, attrs, extra)
            attrs, inputs = carried, inputs + extra
        if not operands.valid_type(op, self.dtype_of(inputs[0])):
            raise GiveUp
        first = self.builder.add(op, attrs, inputs, 0)
        if op == "Split":
            self.parts[first] = len(attrs["split"])
        picked = term.output
        if isinstance(picked, str):
            picked = self.attrs.setdefault(picked, self.rng.randrange(self.parts.get(first, 1)))
        v = first + int(picked)
        if self.builder.shape(v) is None or any(not isinstance(d, int) for d in self.builder.shape(v)):
            raise GiveUp
        if _count(self.shape(v)) > 4000:
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
        choices = hinted if isinstance(hinted, list) else operands.class_members(term.op_class, dtype)
        op = self.rng.choice(choices)
        if not term.carries:
            self.ops[term.op_var] = (op, {}, [])
        return op, None, []

    # ---- graphs

    def sample(self) -> Sample:
        """The whole graph: all roots, some inner values as outputs too, sometimes a stranger among the users."""
        roots: list[int] = []
        for root in self.plan.roots:
            if roots and self.mixed:  # roots without a common variable need not be of one type
                self.dtype = self.rng.choice(sorted(FLOATS)) if self.dtype == F32 else F32
            roots += self._star(root) if root.star else [self.node(root)]
        outputs = list(dict.fromkeys(roots))
        for first in list(outputs):
            outputs += [v for v in self._other_outputs(first) if v not in outputs]
        if self.rng.random() < 0.2 and self.inner:
            outputs.append(self.rng.choice(self.inner))
        if self.rng.random() < 0.1 and self.inner:
            v = self.rng.choice(self.inner)
            if self.dtype_of(v) in FLOATS:
                outputs.append(self.builder.add("Sigmoid", {}, [v], 0))
        graph = self.builder.finish(list(dict.fromkeys(outputs)))
        return Sample(graph, self.index_inputs, wild=self.strayed)

    def _other_outputs(self, first: int) -> list[int]:
        return [first + k for k in range(1, self.parts.get(first, 1))]

    def _star(self, root: Term) -> list[int]:
        out = []
        for _ in range(self.rng.randint(2, 3)):
            self.local = {}
            out.append(self.node(replace(root, star=False)))
        self.local = None
        return out


def _count(shape: Any) -> int:
    n = 1
    for d in shape:
        n *= d
    return n


def draw_sample(plan: Plan, rng: random.Random, *, largest: int = 4, stray: bool = False) -> Sample | None:
    """One graph, or ``None`` where the draw came to nothing. ``stray``: rather beside the hints than by them."""
    try:
        sample = Draw(plan, rng, largest=largest, stray=stray).sample()
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

    text = re.sub(r"(: \w+)\[([^\]]+)\] = input", rename, sample.graph.text())
    try:
        return Sample(_core.Graph.parse(text), sample.index_inputs, symbols, sample.wild)
    except GraphError:
        return None
