"""Foreign rules at concrete shapes: proposals are drawn to fit the source, TASO's own shape rules decide."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rlflow import _core
from rlflow.synthesis.importers.building import Conventions, Maker, Mismatch, Shape, permutation
from rlflow.synthesis.importers.foreign import VARIABLE, ForeignRule, ForeignTerm

Want = tuple["int | None", ...] | None  # a partly known shape; None where not even the rank is
_FOUR = frozenset({"conv2d", "poolmax", "poolavg", "enlarge", "Iconv", "Cpool"})
_CONSTANTS = frozenset({"Iconv", "Cpool", "Imatmul", "Iewmul"})


@dataclass(frozen=True)
class Reading:
    """What one assumes of a match before a foreign rule is applied.

    ``equal_shapes``: elementwise operators see equal shapes (TASO lets them broadcast). ``groups``: convolutions may
    have groups. ``equal_channels``: convolutions of the source have equal channels in and equal channels out.
    ``count_pad``: means over windows count the padding.
    """

    name: str
    equal_shapes: bool = False
    groups: bool = True
    equal_channels: bool = False
    count_pad: bool = False


TASO = Reading("TASO's own shape checks")
EQUAL = Reading("equal elementwise shapes", equal_shapes=True)
UNGROUPED = Reading("and groups = 1 on source convolutions", equal_shapes=True, groups=False)
CHANNELS = Reading("and equal Cin and Cout", equal_shapes=True, groups=False, equal_channels=True)
READINGS = (TASO, EQUAL, UNGROUPED, CHANNELS)


@dataclass(frozen=True)
class Instance:
    """A rule at concrete shapes: both sides as graphs with the same inputs in the same order; ``target`` is None
    where TASO's shape rules do not admit it (TASO then does not apply the rule)."""

    shapes: dict[str, Shape]
    settings: Conventions
    source: _core.Graph
    target: _core.Graph | None

    @property
    def size(self) -> int:
        """Elements of all variables."""
        total = 0
        for shape in self.shapes.values():
            count = 1
            for extent in shape:
                count *= extent
            total += count
        return total


def instance(rule: ForeignRule, shapes: dict[str, Shape], settings: Conventions, reading: Reading = TASO) -> Instance:
    """Both sides at these shapes. Raises Mismatch where the source is not admitted."""
    source = Maker(rule.variables(), shapes, _for_source(settings, reading))
    graph = source.graph(rule.sources)
    if reading.equal_channels and not _channels_equal(source):
        raise Mismatch("channels differ")
    try:
        target = Maker(rule.variables(), shapes, settings).graph(rule.targets)
    except Mismatch:
        return Instance(shapes, settings, graph, None)
    return Instance(shapes, settings, graph, target)


def _for_source(settings: Conventions, reading: Reading) -> Conventions:
    return replace(settings, groups=reading.groups)


def _channels_equal(maker: Maker) -> bool:
    pairs = maker.convolutions
    return len({(maker.shape(x)[1], maker.shape(w)[0]) for x, w in pairs}) <= 1


def draw(
    rule: ForeignRule,
    rng: random.Random,
    reading: Reading = TASO,
    constants: frozenset[str] = frozenset(),
    largest: int = 3,
) -> Instance | None:
    """A random instance, or None where the proposal did not fit. Raises Inexpressible."""
    proposal = _Proposal(rule, rng, reading, largest)
    shapes = proposal.shapes()
    settings = Conventions(constants, proposal.channels, reading.count_pad, reading.equal_shapes)
    try:
        return instance(rule, shapes, settings, reading)
    except Mismatch:
        return None


class _Proposal:
    """Shapes for the variables of a rule that its source probably admits."""

    def __init__(self, rule: ForeignRule, rng: random.Random, reading: Reading, largest: int) -> None:
        self.rule, self.rng, self.reading, self.largest = rule, rng, reading, largest
        self.ranks = ranks_of(rule)
        self.found: dict[str, Shape] = {}
        self.dented = not reading.equal_shapes and rng.random() < 0.2  # all fits, but for one extent of one variable
        self.broadcast = not reading.equal_shapes and not self.dented and rng.random() < 0.6
        self.grouped = reading.groups and rng.random() < 0.6
        self.ones = rng.choice((0.3, 0.65)) if self.broadcast else 0.3
        self.largest = rng.choice((2, largest)) if self.broadcast else largest
        self.channels = rng.choice((1, 2, 3))
        self.fallback = rng.choice((1, 2, 2, 3, 4))
        self.kernel = (rng.choice((1, 3)), rng.choice((1, 3)))
        self.cout = self.extent()

    def shapes(self) -> dict[str, Shape]:
        for side in (*self.rule.sources, *self.rule.targets):
            self.fit(side, None)
        for name in self.rule.variables():  # what an operator that is not known here hides
            self.fit(ForeignTerm(VARIABLE, name=name), None)
        if self.dented:
            self.dent()
        return self.found

    def dent(self) -> None:
        """Makes one extent of one variable 1, so that it broadcasts where the others do not."""
        places = [(name, k) for name, shape in self.found.items() for k, d in enumerate(shape) if d > 1]
        if places:
            name, k = self.rng.choice(places)
            shape = self.found[name]
            self.found[name] = (*shape[:k], 1, *shape[k + 1 :])

    def extent(self) -> int:
        return 1 if self.rng.random() < self.ones else self.rng.randint(2, max(2, self.largest))

    def channel(self) -> int:
        return self.rng.choice((1, 2, 2, 4) if self.grouped else (1, 2, 3))

    def filled(self, want: Want, rank: int) -> Shape:
        if want is not None and len(want) == rank:
            return tuple(self.extent() if d is None else d for d in want)
        return tuple(self.extent() for _ in range(rank))

    def fit(self, term: ForeignTerm, want: Want) -> Shape:
        """Binds the variables of a term so that it has the wanted shape, where that can be; its shape."""
        if term.op == VARIABLE:
            if term.name not in self.found:
                rank = self.ranks.get(term.name)
                if rank is None:
                    rank = self.fallback if want is None else len(want)
                self.found[term.name] = self.filled(want, rank)
            return self.found[term.name]
        if term.op in _CONSTANTS:
            kernel = (term.number("kernel_h", 1), term.number("kernel_w", 1))
            c = self.channels
            return {"Imatmul": (c, c), "Iewmul": ()}.get(term.op, (c, c, *kernel))
        handler = getattr(self, f"_{term.op}", None)
        if handler is not None:
            found: Shape = handler(term, want)
            return found
        shape: Shape = ()
        for k, operand in enumerate(term.operands):
            shape = self.fit(operand, want) if k == 0 else self._beside(operand, shape)
        return shape

    def _beside(self, operand: ForeignTerm, shape: Shape) -> Shape:
        want: Want = shape
        if self.broadcast and self.rng.random() < 0.7:
            want = tuple((None if d == 1 else 1) if self.rng.random() < 0.4 else d for d in shape)
        other = self.fit(operand, want)
        if len(other) != len(shape):
            return shape if len(shape) > len(other) else other
        return tuple(max(a, b) for a, b in zip(shape, other, strict=True))

    def _smul(self, term: ForeignTerm, want: Want) -> Shape:
        shape = self.fit(term.operands[0], want)
        self.fit(term.operands[1], ())
        return shape

    def _matmul(self, term: ForeignTerm, want: Want) -> Shape:
        a, b = term.operands
        rank = len(want) if want is not None else None
        if rank is None or rank < 2:
            rank = max(self.rank_of(term) or self.rng.choice((2, 2, 3)), 2)
        wanted = want if want is not None and len(want) == rank else (None,) * rank
        if self.is_bound(b) and not self.is_bound(a):
            right = self.fit(b, None)
            left = self.fit(a, (*right[:-2], wanted[-2], right[-2] if len(right) > 1 else None))
        else:
            left = self.fit(a, (*wanted[:-1], self.square(term)))
            right = self.fit(b, (*left[:-2], left[-1] if left else None, wanted[-1]))
        return (*left[:-1], right[-1]) if left and right else ()

    def square(self, term: ForeignTerm) -> int | None:
        return self.channels if any(t.op == "Imatmul" for t in term.operands) else None

    def _concat(self, term: ForeignTerm, want: Want) -> Shape:
        axis = term.number("axis")
        rank = max(term.get("rank") or self.rank_of(term) or (len(want) if want else 2), axis + 1)
        wanted = list(want) if want is not None and len(want) == rank else [None] * rank
        total, taken, shape = wanted[axis], 0, tuple(wanted)
        for k, operand in enumerate(term.operands):
            part = list(shape)
            part[axis] = self._share(total, taken, len(term.operands) - k)
            found = self.fit(operand, tuple(part))
            if len(found) != rank:
                return ()
            shape, taken = found, taken + found[axis]
        return tuple(taken if k == axis else d or 1 for k, d in enumerate(shape))

    def _share(self, total: int | None, taken: int, parts: int) -> int | None:
        """The extent of the next of so many parts that are to have a total; None where it is free."""
        left = None if total is None else total - taken - (parts - 1)
        if left is None or left < 1:
            return None
        return left if parts == 1 else self.rng.randint(1, left)

    def _conv2d(self, term: ForeignTerm, want: Want) -> Shape:
        x, w = term.operands
        wanted = want if want is not None and len(want) == 4 else (None,) * 4
        constant = w.op in _CONSTANTS
        group = self.rng.choice((1, 2, 2, 4)) if self.grouped else 1
        out = wanted[1] or (self.cout if self.reading.equal_channels else self.channel() * group)
        if (self.is_bound(w) or constant) and not self.is_bound(x):
            weight = self.fit(w, None)
            inside = weight[1] * self.rng.choice((1, group)) if len(weight) > 1 else None
            image = self.fit(x, (wanted[0], inside, *wanted[2:]))
        else:
            image = self.fit(x, (wanted[0], wanted[1] if x == w else self.channel(), *wanted[2:]))
            inside = image[1] if len(image) > 1 else 1
            if inside % group == 0:
                inside //= group
            weight = self.fit(w, (out, inside, *self.kernel))
        return (image[0], weight[0], *image[2:]) if len(image) == 4 and len(weight) == 4 else ()

    def _enlarge(self, term: ForeignTerm, want: Want) -> Shape:
        to = (term.number("kernel_h", 3), term.number("kernel_w", 3))
        if len(term.operands) > 1:
            to = tuple(self.fit(term.operands[1], None)[2:])  # type: ignore[assignment]
        shape = self.fit(term.operands[0], (*(want or (None, None))[:2], *(self.rng.choice((1, k)) for k in to)))
        return (*shape[:2], *to)

    def _transpose(self, term: ForeignTerm, want: Want) -> Shape:
        perm = permutation(term)
        inner: list[int | None] = [None] * len(perm)
        if want is not None and len(want) == len(perm):
            for k, a in enumerate(perm):
                inner[a] = want[k]
        shape = self.fit(term.operands[0], tuple(inner))
        return tuple(shape[a] for a in perm) if len(shape) == len(perm) else shape

    def _split(self, term: ForeignTerm, want: Want) -> Shape:
        return self.fit(term.operands[0], None)

    def _output(self, term: ForeignTerm, want: Want) -> Shape:
        return self.fit(term.operands[0], None)

    def is_bound(self, term: ForeignTerm) -> bool:
        return all(t.name in self.found for t in term.walk() if t.op == VARIABLE) and any(
            t.op == VARIABLE for t in term.walk()
        )

    def rank_of(self, term: ForeignTerm) -> int | None:
        found = [self.ranks[t.name] for t in term.walk() if t.op == VARIABLE and t.name in self.ranks]
        bound = [len(self.found[t.name]) for t in term.walk() if t.op == VARIABLE and t.name in self.found]
        ranks = [r for r in (*found, *bound) if r]
        return ranks[0] if ranks else None


#: Variables of TASO's generator: two axes for 1 to 6, four for 7 to 19, none for 20. Used where a file gives no rank.
_BY_NUMBER = {**dict.fromkeys(range(1, 7), 2), **dict.fromkeys(range(7, 20), 4), 20: 0}


@functools.lru_cache(maxsize=2048)
def ranks_of(rule: ForeignRule) -> dict[str, int]:
    """Ranks of the variables that follow from the operators; in the equations, which give no rank to a concatenation,
    from TASO's numbering too."""
    ranks: dict[str, int] = {}
    classes = _Classes()
    terms = rule.operators()
    for term in terms:
        _equate(term, classes)
    for term in terms:
        rank = _rank_named(term)
        if rank is not None:
            classes.known[classes.root(_key(term))] = rank
    for name in rule.variables():
        key = classes.root(name)
        number = int(name.rpartition("_")[2]) if name.startswith("input_") else 0
        if key in classes.known:
            ranks[name] = classes.known[key]
        elif rule.numbered and number in _BY_NUMBER:
            ranks[name] = _BY_NUMBER[number]
    return ranks


class _Classes:
    """Values of equal rank."""

    def __init__(self) -> None:
        self.parent: dict[object, object] = {}
        self.known: dict[object, int] = {}

    def root(self, item: object) -> object:
        while self.parent.get(item, item) != item:
            item = self.parent[item]
        return item

    def join(self, a: object, b: object) -> None:
        a, b = self.root(a), self.root(b)
        if a != b:
            self.parent[a] = b
            if a in self.known:
                self.known.setdefault(b, self.known[a])


def _key(term: ForeignTerm) -> object:
    return term.name if term.op == VARIABLE else term


def _equate(term: ForeignTerm, classes: _Classes) -> None:
    if term.op in _CONSTANTS:
        return
    operands = list(term.operands)
    if term.op == "smul":
        classes.known[classes.root(_key(operands[1]))] = 0
        operands = operands[:1]
    if term.op == "output" or term.op == "split":
        operands = operands[:1]
    for operand in operands:
        if operand.op != "Iewmul":
            classes.join(_key(operand), _key(term))


def _rank_named(term: ForeignTerm) -> int | None:
    if term.op in _FOUR:
        return 4
    if term.op == "concat":
        return term.get("rank")
    if term.op == "transpose":
        return len(permutation(term))
    return 2 if term.op == "Imatmul" else None


def draws(
    rule: ForeignRule, count: int, seed: object, reading: Reading = TASO, constants: frozenset[str] = frozenset()
) -> Sequence[Instance]:
    """Up to ``count`` instances with a target, of different shapes, from a fixed number of proposals."""
    rng = random.Random(f"{seed}/{rule}/{reading.name}")
    found: dict[tuple[tuple[str, Shape], ...], Instance] = {}
    for _ in range(60 * count):
        item = draw(rule, rng, reading, constants)
        if item is not None and item.target is not None:
            found.setdefault(tuple(sorted(item.shapes.items())), item)
        if len(found) >= count:
            break
    return list(found.values())
