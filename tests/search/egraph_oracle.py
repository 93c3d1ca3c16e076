"""Slow, obvious versions of what the e-graph does, to compare it with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

Term = tuple  # ("f", child, ...) with children terms; ("a",) is a leaf


def parse(text: str) -> Term:
    """An S-expression as nested tuples; variables are ("?x",)."""
    tokens = text.replace("(", " ( ").replace(")", " ) ").split()

    def read(at: int) -> tuple[Term, int]:
        if tokens[at] != "(":
            return (tokens[at],), at + 1
        head, children, at = tokens[at + 1], [], at + 2
        while tokens[at] != ")":
            child, at = read(at)
            children.append(child)
        return (head, *children), at + 1

    return read(0)[0]


def text(term: Term) -> str:
    return term[0] if len(term) == 1 else f"({term[0]} {' '.join(map(text, term[1:]))})"


def match(pattern: Term, term: Term, bound: dict[str, Term]) -> dict[str, Term] | None:
    if pattern[0].startswith("?"):
        known = bound.get(pattern[0])
        return bound | {pattern[0]: term} if known is None else bound if known == term else None
    if pattern[0] != term[0] or len(pattern) != len(term):
        return None
    for p, t in zip(pattern[1:], term[1:], strict=True):
        bound_or_none = match(p, t, bound)
        if bound_or_none is None:
            return None
        bound = bound_or_none
    return bound


def build(pattern: Term, bound: dict[str, Term]) -> Term:
    return bound[pattern[0]] if pattern[0].startswith("?") else (pattern[0], *(build(p, bound) for p in pattern[1:]))


def rewrites(term: Term, rules: list[tuple[Term, Term]]) -> Iterator[Term]:
    """Every term one application of a rule, at the root or below, away."""
    for left, right in rules:
        bound = match(left, term, {})
        if bound is not None:
            yield build(right, bound)
    for i in range(1, len(term)):
        for child in rewrites(term[i], rules):
            yield (*term[:i], child, *term[i + 1 :])


def closure(term: Term, rules: list[tuple[Term, Term]], limit: int) -> set[Term] | None:
    """All terms that the rules reach; None above the limit."""
    seen, waiting = {term}, [term]
    while waiting:
        for other in rewrites(waiting.pop(), rules):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
        if len(seen) > limit:
            return None
    return seen


def represented(egraph, root: int, limit: int) -> set[Term] | None:
    """All terms of a class, by brute force; None above the limit or where there are infinitely many."""
    arrays = egraph.nodes()
    members: dict[int, list[int]] = {}
    for i, cls in enumerate(arrays["cls"].tolist()):
        members.setdefault(cls, []).append(i)
    open_classes: set[int] = set()
    done: dict[int, set[Term] | None] = {}

    def terms(cls: int) -> set[Term] | None:
        if cls in done:
            return done[cls]
        if cls in open_classes:
            return None
        open_classes.add(cls)
        out: set[Term] | None = set()
        for i in members[cls]:
            begin, end = arrays["child_begin"][i : i + 2]
            below = [terms(int(c)) for c in arrays["child"][begin:end]]
            if out is None or any(b is None for b in below) or math.prod(len(b) for b in below if b) > limit:
                out = None
                break
            op, attr = int(arrays["op"][i]), int(arrays["attr"][i])
            head = egraph.attr_text(op, attr) or egraph.op_name(op)
            out |= {(head, *combination) for combination in itertools.product(*(b for b in below if b is not None))}
        open_classes.discard(cls)
        done[cls] = out
        return out

    return terms(egraph.find(root))


class NaiveCongruence:
    """Equality of terms under congruence: a partition that is closed by looking at all pairs until nothing changes."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, tuple[int, ...]]] = []
        self.block: list[int] = []

    def add(self, op: str, children: tuple[int, ...]) -> int:
        key = (op, tuple(self.block[c] for c in children))
        for i, (other, kids) in enumerate(self.nodes):
            if (other, tuple(self.block[c] for c in kids)) == key:
                return i
        self.nodes.append((op, children))
        self.block.append(len(self.block))
        return len(self.nodes) - 1

    def unite(self, a: int, b: int) -> None:
        keep, drop = sorted((self.block[a], self.block[b]))
        self.block = [keep if x == drop else x for x in self.block]

    def close(self) -> None:
        changed = True
        while changed:
            changed = False
            for (i, (op, kids)), (j, (other, others)) in itertools.combinations(enumerate(self.nodes), 2):
                same = op == other and [self.block[c] for c in kids] == [self.block[c] for c in others]
                if same and self.block[i] != self.block[j]:
                    self.unite(i, j)
                    changed = True


def cheapest(problem) -> float:
    """The optimum of an extraction problem, by trying every choice; infinite where there is none."""
    begin, child, cost = problem.child_begin.tolist(), problem.child.tolist(), problem.cost.tolist()
    members: list[list[int]] = [[] for _ in range(problem.classes)]
    for node, cls in enumerate(problem.node_class.tolist()):
        members[cls].append(node)
    best = math.inf

    def search(choice: dict[int, int], waiting: list[int], spent: float) -> None:
        nonlocal best
        if spent >= best:
            return
        todo = [cls for cls in waiting if cls not in choice]
        if not todo:
            if not cyclic(choice):
                best = spent
            return
        cls = todo[0]
        for node in members[cls]:
            search(choice | {cls: node}, todo[1:] + child[begin[node] : begin[node + 1]], spent + cost[node])

    def cyclic(choice: dict[int, int]) -> bool:
        depth: dict[int, int] = {}

        def visit(cls: int) -> bool:
            if cls in depth:
                return depth[cls] == 0
            depth[cls] = 0
            node = choice[cls]
            found = any(visit(c) for c in child[begin[node] : begin[node + 1]])
            depth[cls] = 1
            return found

        return any(visit(int(root)) for root in problem.roots)

    search({}, [int(root) for root in problem.roots], 0.0)
    return best
