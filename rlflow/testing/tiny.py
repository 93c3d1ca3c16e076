"""Problems small enough that every reachable graph can be enumerated, each with one difficulty of the real ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlflow.graph import Graph
from rlflow.rewrite import Rule, RuleSet, State, compiled
from rlflow.search import Budget, Problem


@dataclass(frozen=True)
class TinyProblem:
    """``text``: the graph; ``rules``: what may be rewritten; ``difficulty``: what makes it hard, in a sentence.

    ``defeats``: strategies that are known not to reach the optimum, which is the point of the problem.
    """

    name: str
    difficulty: str
    text: str
    rules: tuple[Rule, ...]
    defeats: frozenset[str] = frozenset()
    cost: dict[str, Any] = field(default_factory=lambda: {"fusion": "none"})

    def graph(self) -> Graph:
        return Graph.parse(self.text)

    def ruleset(self) -> RuleSet:
        return compiled(self.rules)

    def cost_model(self) -> Any:
        from rlflow import price

        return price.make("analytic", **self.cost)

    def problem(self, budget: str | Budget = "2000x", **options: Any) -> Problem:
        """The problem for a search; ``options`` are those of :class:`rlflow.search.Problem`."""
        return Problem(self.graph(), self.ruleset(), self.cost_model(), budget, **options)


class Optimum(NamedTuple):
    """Cost of the cheapest reachable graph in milliseconds, and how many graphs are reachable."""

    cost_ms: float
    graphs: int


def optimum(problem: TinyProblem, limit: int = 20_000) -> Optimum:
    """Enumerate all graphs that the rules reach; independent of every strategy. Raises ``ValueError`` above ``limit``
    graphs.
    """
    root = State(problem.graph(), problem.ruleset(), problem.cost_model().pricer)
    seen, waiting, best = {root.graph.digest}, [root], root.cost
    while waiting:
        state = waiting.pop()
        best = min(best, state.cost)
        moves = state.moves()
        for i in range(len(moves)):
            if moves.digest_hex(i) not in seen:
                seen.add(moves.digest_hex(i))
                waiting.append(state.open(i))
        if len(seen) > limit:
            raise ValueError(f"The problem {problem.name!r} reaches more than {limit} graphs; it is not tiny.")
    return Optimum(best, len(seen))


def rule(
    name: str, source: list[str], target: list[str], where: tuple[str, ...] = (), let: tuple[tuple[str, str], ...] = ()
) -> Rule:
    return Rule(name=name, family="tiny", source=tuple(source), target=tuple(target), where=where, let=let)


RELU_BELOW = rule("relu-below-transpose", ["(Relu (Transpose{perm=?p} ?x))"], ["(Transpose{perm=?p} (Relu ?x))"])
RELU_ABOVE = rule("relu-above-transpose", ["(Transpose{perm=?p} (Relu ?x))"], ["(Relu (Transpose{perm=?p} ?x))"])
CANCEL = rule(
    "cancel-transposes", ["(Transpose{perm=?p} (Transpose{perm=?q} ?x))"], ["?x"], ("compose(?q, ?p) == iota(len(?p))",)
)
TWICE = rule("relu-twice", ["(Relu (Relu ?x))"], ["(Relu ?x)"])
SPLIT_RELU = rule("relu-of-concat", ["(Relu (Concat{axis=?k} ?x ?y))"], ["(Concat{axis=?k} (Relu ?x) (Relu ?y))"])
SLICE_CONCAT = rule(
    "slice-of-concat",
    ["(Slice{starts=?s, ends=?e, axes=?a, steps=?t} (Concat{axis=?k} ?x ?y))"],
    ["?y"],
    ("?a == [?k]", "?t == [1]", "?s == [dim(?x, ?k)]", "?e == [dim(?x, ?k) + dim(?y, ?k)]"),
)
MERGE = rule(
    "merge-products",
    ["(MatMul ?x ?v)", "(MatMul ?x ?w)"],
    ["?s:0", "?s:1"],
    ("constant(?v)", "constant(?w)", "rank(?v) == 2", "rank(?w) == 2", "rank(?x) == 2", "dim(?v, 1) + dim(?w, 1) <= 6"),
    (("?s", "(Split{axis=1, split=[dim(?v, 1), dim(?w, 1)]} (MatMul ?x (Concat{axis=1} ?v ?w)))"),),
)


def _chain(blocks: int) -> str:
    lines = ["v0: f32[8,16] = input"]
    for block in range(blocks):
        lines.append(f"a{block} = Relu(v{block})")
        lines.append(f"b{block} = Relu(a{block})")
        lines.append(f"v{block + 1} = Tanh(b{block})")
    return "\n".join([*lines, f"return v{blocks}"])


TINY: tuple[TinyProblem, ...] = (
    TinyProblem(
        "twins",
        "the same improvement is open in six places at once",
        _chain(6),
        (TWICE,),
    ),
    TinyProblem(
        "plateau",
        "two steps that change nothing come before the one that pays",
        """
        x: f32[8,16] = input
        a = Transpose{perm=[1,0]}(x)
        b = Relu(a)
        c = Transpose{perm=[1,0]}(b)
        d = Tanh(c)
        e = Transpose{perm=[1,0]}(d)
        f = Relu(e)
        g = Transpose{perm=[1,0]}(f)
        return g
        """,
        (RELU_BELOW, RELU_ABOVE, CANCEL),
        frozenset({"greedy"}),
    ),
    TinyProblem(
        "valley",
        "a step that costs more comes before the one that pays",
        """
        x: f32[64,256] = input
        w: f32[256,256] = const
        p = MatMul(x, w)
        q = Tanh(x)
        c = Concat{axis=1}(p, q)
        r = Relu(c)
        s = Slice{starts=[256], ends=[512], axes=[1], steps=[1]}(r)
        t = MatMul(s, w)
        return p, t
        """,
        (SPLIT_RELU, SLICE_CONCAT),
        frozenset({"greedy"}),
    ),
    TinyProblem(
        "merge",
        "two products of one input become one, which takes a match with two roots",
        """
        x: f32[64,256] = input
        v: f32[256,2] = const
        w: f32[256,3] = const
        a = MatMul(x, v)
        b = MatMul(x, w)
        c = Tanh(a)
        return b, c
        """,
        (MERGE,),
    ),
    TinyProblem(
        "exclusive",
        "the best first pair of products to merge leaves the others without a partner",
        """
        x: f32[64,256] = input
        a: f32[256,4] = const
        b: f32[256,2] = const
        c: f32[256,4] = const
        d: f32[256,2] = const
        p = MatMul(x, a)
        q = MatMul(x, b)
        r = MatMul(x, c)
        s = MatMul(x, d)
        return p, q, r, s
        """,
        (MERGE,),
        frozenset({"greedy"}),
    ),
    TinyProblem(
        "nothing",
        "no rule fires",
        """
        x: f32[8,16] = input
        y = Tanh(x)
        return y
        """,
        (TWICE, CANCEL),
    ),
)


def by_name(name: str, problems: Callable[[], tuple[TinyProblem, ...]] = lambda: TINY) -> TinyProblem:
    """The problem of that name; raises ``KeyError``."""
    return {problem.name: problem for problem in problems()}[name]
