"""More problems whose optimum is known by enumeration: one difficulty of real search spaces each, and mixtures.

:data:`TINY` is what the conformance suite runs on; :data:`TOYS` is what strategies are compared on
(``reproduce/search_toys``). ``tests/conformance/test_toys.py`` enumerates all of them.
"""

from __future__ import annotations

from rlflow.rewrite import Rule
from rlflow.search import Budget, Problem
from rlflow.testing.tiny import (
    CANCEL,
    MERGE,
    RELU_ABOVE,
    RELU_BELOW,
    SLICE_CONCAT,
    SPLIT_RELU,
    TINY,
    TWICE,
    TinyProblem,
    rule,
)

_SHARE_WEIGHT = rule(
    "stack-rows",
    ["(MatMul ?x ?w)", "(MatMul ?y ?w)"],
    ["?s:0", "?s:1"],
    ("constant(?w)", "rank(?w) == 2", "rank(?x) == 2", "rank(?y) == 2"),
    (("?s", "(Split{axis=0, split=[dim(?x, 0), dim(?y, 0)]} (MatMul (Concat{axis=0} ?x ?y) ?w))"),),
)
_ASSOCIATE = (
    rule("to-the-right", ["(MatMul (MatMul ?x ?y) ?z)"], ["(MatMul ?x (MatMul ?y ?z))"], _ranks := (
        "rank(?x) == 2", "rank(?y) == 2", "rank(?z) == 2",
    )),
    rule("to-the-left", ["(MatMul ?x (MatMul ?y ?z))"], ["(MatMul (MatMul ?x ?y) ?z)"], _ranks),
)  # fmt: skip
_SUMS = (
    rule("sum-to-the-right", ["(Add (Add ?x ?y) ?z)"], ["(Add ?x (Add ?y ?z))"], _same := (
        "shape(?x) == shape(?y)", "shape(?y) == shape(?z)",
    )),
    rule("factor-out", ["(Add (MatMul ?x ?a) (MatMul ?x ?b))"], ["(MatMul ?x (Add ?a ?b))"], (
        "shape(?a) == shape(?b)",
    )),
)  # fmt: skip
_MOVE_TRANSPOSE = (RELU_BELOW, RELU_ABOVE, CANCEL)


def _between_transposes(source: str, prefix: str, relus: int) -> list[str]:
    """``relus`` pointwise operators between two transposes that cancel; the last value is called ``prefix``."""
    lines, here = [f"{prefix}t = Transpose{{perm=[1,0]}}({source})"], f"{prefix}t"
    for k in range(relus):
        lines.append(f"{prefix}{k} = Relu({here})" if k % 2 == 0 else f"{prefix}{k} = Tanh({here})")
        here = f"{prefix}{k}"
    return [*lines, f"{prefix} = Transpose{{perm=[1,0]}}({here})"]


_TANH_BELOW = rule("tanh-below-transpose", ["(Tanh (Transpose{perm=?p} ?x))"], ["(Transpose{perm=?p} (Tanh ?x))"])
_TANH_ABOVE = rule("tanh-above-transpose", ["(Transpose{perm=?p} (Tanh ?x))"], ["(Tanh (Transpose{perm=?p} ?x))"])


def _valley(source: str, prefix: str, width: int) -> list[str]:
    """Half of a wide tensor is computed and thrown away; getting rid of it costs a kernel first."""
    return [
        f"{prefix}p = MatMul({source}, w)",
        f"{prefix}q = Tanh({source})",
        f"{prefix}c = Concat{{axis=1}}({prefix}p, {prefix}q)",
        f"{prefix}r = Relu({prefix}c)",
        f"{prefix}s = Slice{{starts=[{width}], ends=[{2 * width}], axes=[1], steps=[1]}}({prefix}r)",
        f"{prefix} = MatMul({prefix}s, w)",
    ]


def _program(*lines: str) -> str:
    return "\n".join(lines)


def _chain_of_products(sizes: list[int]) -> str:
    """A product of matrices, from the left: ``sizes`` [n + 1] are the dimensions of n matrices, all of them inputs."""
    names = [f"m{k}" for k in range(len(sizes) - 1)]
    lines = [f"{name}: f32[{a},{b}] = input" for name, a, b in zip(names, sizes, sizes[1:], strict=False)]
    here = names[0]
    for k, name in enumerate(names[1:], 1):
        lines.append(f"p{k} = MatMul({here}, {name})")
        here = f"p{k}"
    return "\n".join([*lines, f"return {here}"])


def _products(widths: list[int]) -> str:
    lines = ["x: f32[64,256] = input"]
    for k, width in enumerate(widths):
        lines += [f"w{k}: f32[256,{width}] = const", f"p{k} = MatMul(x, w{k})"]
    return "\n".join([*lines, "return " + ", ".join(f"p{k}" for k in range(len(widths)))])


def _haystack(pairs: int) -> str:
    lines, here = ["x: f32[64,64] = input", "h = Tanh(x)"], "h"
    for k in range(pairs):  # a Relu may stand on either side of its transpose, and it does not matter on which
        lines += [f"a{k} = Transpose{{perm=[1,0]}}({here})", f"b{k} = Relu(a{k})", f"h{k} = Tanh(b{k})"]
        here = f"h{k}"
    return "\n".join([*lines, *_between_transposes(here, "n", 1), "return n"])


TOYS: tuple[TinyProblem, ...] = (
    *TINY,
    TinyProblem(
        "long-plateau",
        "eight steps that change nothing, in any order and direction, come before the two that pay",
        _program(
            "x: f32[32,48] = input",
            *_between_transposes("x", "a", 4),
            "m = Tanh(a)",
            *_between_transposes("m", "b", 4),
            "return b",
        ),
        (*_MOVE_TRANSPOSE, _TANH_BELOW, _TANH_ABOVE),
        frozenset({"greedy", "backtracking"}),
    ),
    TinyProblem(
        "haystack",
        "one chain pays among thousands of graphs that cost the same",
        _haystack(8),
        _MOVE_TRANSPOSE,
        frozenset({"greedy"}),
    ),
    TinyProblem(
        "two-valleys",
        "two steps that cost more, far apart, and each has to be followed to its end",
        _program(
            "x: f32[64,256] = input",
            "w: f32[256,256] = const",
            *_valley("x", "a", 256),
            *_valley("a", "b", 256),
            "return ap, a, bp, b",
        ),
        (SPLIT_RELU, SLICE_CONCAT),
        frozenset({"greedy"}),
    ),
    TinyProblem(
        "deep-valley",
        "a step makes everything a third dearer before the next one pays",
        _program(
            "x: f32[64,256] = input",
            "a = Tanh(x)",
            "c = Concat{axis=1}(x, a)",
            "r = Relu(c)",
            "s = Slice{starts=[256], ends=[512], axes=[1], steps=[1]}(r)",
            "return s",
        ),
        (SPLIT_RELU, SLICE_CONCAT),
        frozenset({"greedy", "backtracking"}),
        {"fusion": "none", "overhead_us": 30.0},
    ),
    TinyProblem(
        "cycle-trap",
        "the best first merge makes the second one a cycle",
        """
        x: f32[4,256] = input
        y: f32[4,256] = input
        w: f32[256,256] = const
        p = MatMul(x, w)
        a = Tanh(p)
        q = MatMul(a, w)
        r = MatMul(y, w)
        b = Tanh(r)
        c = Slice{starts=[0], ends=[2], axes=[0], steps=[1]}(b)
        s = MatMul(c, w)
        return q, s
        """,
        (_SHARE_WEIGHT,),
        frozenset({"greedy"}),
    ),
    TinyProblem(
        "packing",
        "products are merged up to a limit: which of them go together is a packing problem",
        _products([4, 1, 2, 3, 2]),
        (MERGE,),
        frozenset({"greedy"}),
    ),
    TinyProblem(
        "merge-after-moves",
        "two products share their input only once two transposes are out of the way",
        _program(
            "x: f32[64,256] = input",
            "v: f32[256,2] = const",
            "w: f32[256,3] = const",
            "u = Relu(x)",
            *_between_transposes("x", "n", 1),
            "a = MatMul(u, v)",
            "b = MatMul(n, w)",
            "return a, b",
        ),
        (*_MOVE_TRANSPOSE, MERGE),
    ),
    TinyProblem(
        "matrix-chain",
        "a product of six matrices; re-association has local optima",
        _chain_of_products([30, 35, 15, 5, 10, 20, 25]),
        _ASSOCIATE,
    ),
    TinyProblem(
        "steep-chain",
        "re-association of narrow and wide matrices: the way to the optimum goes over dearer graphs",
        _chain_of_products([64, 8, 96, 4, 80, 16, 64]),
        _ASSOCIATE,
    ),
    TinyProblem(
        "hidden-factor",
        "terms with a common factor have to be brought together first",
        """
        x: f32[64,128] = input
        y: f32[64,64] = input
        a: f32[128,64] = const
        b: f32[128,64] = const
        c: f32[128,64] = const
        p = MatMul(x, a)
        q = MatMul(x, b)
        r = MatMul(x, c)
        s = Add(y, p)
        t = Add(s, q)
        u = Add(t, r)
        return u
        """,
        _SUMS,
        frozenset({"greedy"}),
    ),
    TinyProblem(
        "mixture",
        "a plateau, a valley, a choice between merges and a twin, all in one graph",
        _program(
            "x: f32[64,256] = input",
            "w: f32[256,256] = const",
            "a: f32[256,4] = const",
            "b: f32[256,2] = const",
            "c: f32[256,4] = const",
            "d: f32[256,2] = const",
            *_between_transposes("x", "n", 1),
            *_valley("n", "v", 256),
            "e = Relu(v)",
            "f = Relu(e)",
            *(f"p{k} = MatMul(f, {k})" for k in "abcd"),
            "return vp, pa, pb, pc, pd",
        ),
        (*_MOVE_TRANSPOSE, SPLIT_RELU, SLICE_CONCAT, MERGE, TWICE),
        frozenset({"greedy"}),
    ),
)


def rules_of(toys: tuple[TinyProblem, ...] = TOYS) -> list[Rule]:
    """Every rule that the toys use, each once."""
    return list({one.name: one for toy in toys for one in toy.rules}.values())


def toy_problem(name: str, budget: Budget | str, seed: int) -> Problem:
    """The problem of a toy by its name; a module's function, so that it can be sent to another process."""
    return {toy.name: toy for toy in TOYS}[name].problem(budget, seed=seed)
