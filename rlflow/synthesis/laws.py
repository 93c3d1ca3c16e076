"""The operators' algebraic laws, as statements in the rules' own language.

Each is validated like any rule, by the exact evaluator (tests/synthesis/test_axioms.py); a law that ``both`` marks in
both directions. They are stated here from the operators' definitions; TASO's axioms (SOSP'19, section 4.2) say the
same of tensors without shapes, so that most conditions are ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rlflow.rewrite import Rule


@dataclass(frozen=True)
class Law:
    """``left`` = ``right`` where the conditions hold and ``left`` is well-typed; with ``both``, also where ``right``
    is."""

    name: str
    left: str
    right: str
    where: tuple[str, ...] = ()
    both: bool = True
    samples: tuple[dict[str, Any], ...] = ()  # hints, as in a rule

    def rules(self) -> list[Rule]:
        """The law as rules to be validated."""
        left, right = self.left, self.right
        if left.startswith("(Split{"):  # a rule says what becomes of all outputs; the law is its case of two operands
            whole = Rule(self.name, "law", (_CUT,), ("*?xs...",), ("?s == dims(?xs..., ?k)",), samples=self.samples)
            return [whole]
        forth = Rule(self.name, "law", (left,), (right,), self.where, samples=self.samples)
        declared = re.search(r"\?f:\w+", left)  # what is the source declares the class of an operator variable
        if declared:
            left = left.replace(declared.group(), "?f")
            right = right.replace("?f", declared.group(), 1)
        back = Rule(f"{self.name}-back", "law", (right,), (left,), self.where, samples=self.samples)
        return [forth, back] if self.both else [forth]


_CUT = "(Split{axis=?k, split=?s} (Concat{axis=?k} ?xs...))"
_GROUPS = 'attr(?a, "group") == 1'


def _beside(x: str, y: str, axis: str) -> str:
    return f"erase(shape({x}), {axis}) == erase(shape({y}), {axis})"


_POINTWISE = [
    Law("add-commutes", "(Add ?x ?y)", "(Add ?y ?x)", both=False),
    Law("mul-commutes", "(Mul ?x ?y)", "(Mul ?y ?x)", both=False),
    Law("add-associates", "(Add (Add ?x ?y) ?z)", "(Add ?x (Add ?y ?z))"),
    Law("mul-associates", "(Mul (Mul ?x ?y) ?z)", "(Mul ?x (Mul ?y ?z))"),
    Law("mul-distributes", "(Mul (Add ?x ?y) ?z)", "(Add (Mul ?x ?z) (Mul ?y ?z))"),
    Law("mul-distributes-over-sub", "(Mul (Sub ?x ?y) ?z)", "(Sub (Mul ?x ?z) (Mul ?y ?z))"),
    Law("sub-is-add-of-neg", "(Sub ?x ?y)", "(Add ?x (Neg ?y))"),
    Law("neg-of-neg", "(Neg (Neg ?x))", "?x", both=False),
    Law("neg-of-sum", "(Neg (Add ?x ?y))", "(Add (Neg ?x) (Neg ?y))"),
    Law("neg-of-product", "(Neg (Mul ?x ?y))", "(Mul (Neg ?x) ?y)"),
    Law("div-of-product", "(Div (Mul ?x ?y) ?z)", "(Mul ?x (Div ?y ?z))", ("is_float(?x)",)),
    Law("div-of-sum", "(Div (Add ?x ?y) ?z)", "(Add (Div ?x ?z) (Div ?y ?z))", ("is_float(?x)",)),
    Law("relu-twice", "(Relu (Relu ?x))", "(Relu ?x)", both=False),
    Law("max-commutes", "(Max ?x ?y)", "(Max ?y ?x)", both=False),
    Law("min-commutes", "(Min ?x ?y)", "(Min ?y ?x)", both=False),
]
_PRODUCTS = [
    Law(
        "matmul-associates",
        "(MatMul (MatMul ?x ?y) ?z)",
        "(MatMul ?x (MatMul ?y ?z))",
        ("rank(?x) >= 2", "rank(?y) >= 2", "rank(?z) >= 2"),
    ),
    Law("matmul-adds-left", "(MatMul (Add ?x ?y) ?z)", "(Add (MatMul ?x ?z) (MatMul ?y ?z))", ("same_shape(?x, ?y)",)),
    Law("matmul-adds-right", "(MatMul ?x (Add ?y ?z))", "(Add (MatMul ?x ?y) (MatMul ?x ?z))", ("same_shape(?y, ?z)",)),
    Law(
        "matmul-subtracts-left",
        "(MatMul (Sub ?x ?y) ?z)",
        "(Sub (MatMul ?x ?z) (MatMul ?y ?z))",
        ("same_shape(?x, ?y)",),
    ),
    Law(
        "matmul-subtracts-right",
        "(MatMul ?x (Sub ?y ?z))",
        "(Sub (MatMul ?x ?y) (MatMul ?x ?z))",
        ("same_shape(?y, ?z)",),
    ),
    Law("matmul-scales-left", "(MatMul (Mul ?x ?c) ?y)", "(Mul (MatMul ?x ?y) ?c)", ("rank(?c) == 0",)),
    Law("matmul-scales-right", "(MatMul ?x (Mul ?y ?c))", "(Mul (MatMul ?x ?y) ?c)", ("rank(?c) == 0",)),
    Law("matmul-divides-left", "(MatMul (Div ?x ?c) ?y)", "(Div (MatMul ?x ?y) ?c)", ("rank(?c) == 0", "is_float(?x)")),
    Law(
        "matmul-divides-right", "(MatMul ?x (Div ?y ?c))", "(Div (MatMul ?x ?y) ?c)", ("rank(?c) == 0", "is_float(?x)")
    ),
    Law(
        "matmul-of-columns",
        "(MatMul ?x (Concat{axis=1} ?y ?z))",
        "(Concat{axis=1} (MatMul ?x ?y) (MatMul ?x ?z))",
        ("rank(?x) == 2", "rank(?y) == 2", "rank(?z) == 2"),
    ),
    Law(
        "matmul-of-rows",
        "(MatMul (Concat{axis=0} ?x ?y) ?z)",
        "(Concat{axis=0} (MatMul ?x ?z) (MatMul ?y ?z))",
        ("rank(?x) == 2", "rank(?y) == 2", "rank(?z) == 2"),
    ),
    Law(
        "matmuls-summed",
        "(Add (MatMul ?x ?y) (MatMul ?z ?w))",
        "(MatMul (Concat{axis=1} ?x ?z) (Concat{axis=0} ?y ?w))",
        (
            "rank(?x) == 2",
            "rank(?y) == 2",
            "rank(?z) == 2",
            "rank(?w) == 2",
            "same_shape(?x, ?z)",
            "same_shape(?y, ?w)",
        ),
        samples=({"?x": "f32[A,K]", "?z": "f32[A,K]", "?y": "f32[K,N]", "?w": "f32[K,N]"},),
    ),
    Law(
        "transpose-of-matmul",
        "(Transpose{perm=[1,0]} (MatMul ?x ?y))",
        "(MatMul (Transpose{perm=[1,0]} ?y) (Transpose{perm=[1,0]} ?x))",
        ("rank(?x) == 2", "rank(?y) == 2"),
    ),
]
_CONVOLUTIONS = [
    Law(
        "conv-adds-inputs",
        "(Conv{..?a} (Add ?x ?y) ?w)",
        "(Add (Conv{..?a} ?x ?w) (Conv{..?a} ?y ?w))",
        ("same_shape(?x, ?y)",),
    ),
    Law(
        "conv-adds-weights",
        "(Conv{..?a} ?x (Add ?v ?w))",
        "(Add (Conv{..?a} ?x ?v) (Conv{..?a} ?x ?w))",
        ("same_shape(?v, ?w)",),
    ),
    Law("conv-scales-input", "(Conv{..?a} (Mul ?x ?c) ?w)", "(Mul (Conv{..?a} ?x ?w) ?c)", ("rank(?c) == 0",)),
    Law("conv-scales-weights", "(Conv{..?a} ?x (Mul ?w ?c))", "(Mul (Conv{..?a} ?x ?w) ?c)", ("rank(?c) == 0",)),
    Law(
        "conv-of-batches",
        "(Concat{axis=0} (Conv{..?a} ?x ?w) (Conv{..?a} ?y ?w))",
        "(Conv{..?a} (Concat{axis=0} ?x ?y) ?w)",
        (_beside("?x", "?y", "0"),),
    ),
    Law(
        "conv-of-channels",
        "(Concat{axis=1} (Conv{..?a} ?x ?v) (Conv{..?a} ?x ?w))",
        "(Conv{..?a} ?x (Concat{axis=0} ?v ?w))",
        (_GROUPS, _beside("?v", "?w", "0")),
    ),
    Law(
        "convs-summed",
        "(Add (Conv{..?a} ?x ?v) (Conv{..?a} ?y ?w))",
        "(Conv{..?a} (Concat{axis=1} ?x ?y) (Concat{axis=1} ?v ?w))",
        (_GROUPS, "same_shape(?x, ?y)", "same_shape(?v, ?w)"),
    ),
    Law(
        "conv-with-bias",
        "(Conv{..?a} ?x ?w ?b)",
        "(Add (Conv{..?a} ?x ?w) (Reshape{shape=cat([dim(?w,0)], fill(rank(?w)-2, 1))} ?b))",
        both=False,
    ),
]
_CUTS = (
    {"?k": 0, "?xs": "f32[1,B]", "?s": {"choose": [[1], [1, 1], [1, 1, 1]]}},
    {"?k": 1, "?xs": "f32[B,2]", "?s": {"choose": [[2], [2, 2], [2, 2, 2]]}},
)
_MOVEMENT = [
    Law("unary-of-concat", "(?f:unary (Concat{axis=?k} ?x ?y))", "(Concat{axis=?k} (?f ?x) (?f ?y))"),
    Law("unary-of-transpose", "(?f:unary (Transpose{perm=?p} ?x))", "(Transpose{perm=?p} (?f ?x))"),
    Law("unary-of-reshape", "(?f:unary (Reshape{shape=?s} ?x))", "(Reshape{shape=?s} (?f ?x))"),
    Law(
        "binary-of-transposes",
        "(?f:binary (Transpose{perm=?p} ?x) (Transpose{perm=?p} ?y))",
        "(Transpose{perm=?p} (?f ?x ?y))",
        ("rank(?x) == rank(?y)",),
    ),
    Law(
        "binary-of-concats",
        "(?f:binary (Concat{axis=?k} ?x ?z) (Concat{axis=?k} ?y ?w))",
        "(Concat{axis=?k} (?f ?x ?y) (?f ?z ?w))",
        ("same_shape(?x, ?y)", "same_shape(?z, ?w)", "dtype(?x) == dtype(?z)"),  # a comparison hides its types
    ),
    Law(
        "concat-associates",
        "(Concat{axis=?k} (Concat{axis=?k} ?x ?y) ?z)",
        "(Concat{axis=?k} ?x (Concat{axis=?k} ?y ?z))",
    ),
    Law(
        "concats-exchanged",
        "(Concat{axis=?k} (Concat{axis=?l} ?x ?y) (Concat{axis=?l} ?z ?w))",
        "(Concat{axis=?l} (Concat{axis=?k} ?x ?z) (Concat{axis=?k} ?y ?w))",
        (
            "?k != ?l",
            _beside("?x", "?z", "?k"),
            _beside("?y", "?w", "?k"),
            _beside("?x", "?y", "?l"),
            _beside("?z", "?w", "?l"),
        ),
        samples=(
            {"?x": "f32[A,B]", "?y": "f32[A,C]", "?z": "f32[D,B]", "?w": "f32[D,C]", "?k": 0, "?l": 1},
            {"?x": "f32[A,B,E]", "?y": "f32[A,C,E]", "?z": "f32[A,B,F]", "?w": "f32[A,C,F]", "?k": 2, "?l": 1},
        ),
    ),
    Law("transpose-twice", "(Transpose{perm=[1,0]} (Transpose{perm=[1,0]} ?x))", "?x", both=False),
    Law(
        "split-of-concat-0",
        "(Split{axis=?k, split=?s} (Concat{axis=?k} ?x ?y)):0",
        "?x",
        ("?s == [dim(?x, ?k), dim(?y, ?k)]",),
        both=False,
        samples=_CUTS,
    ),
    Law(
        "split-of-concat-1",
        "(Split{axis=?k, split=?s} (Concat{axis=?k} ?x ?y)):1",
        "?y",
        ("?s == [dim(?x, ?k), dim(?y, ?k)]",),
        both=False,
        samples=_CUTS,
    ),
]
_IMAGES = ({"?x": "f32[A,C,4,5]", "?y": "f32[B,C,4,5]"},)
_POOLS = [
    Law(
        "average-of-concat",
        "(AveragePool{..?p} (Concat{axis=1} ?x ?y))",
        "(Concat{axis=1} (AveragePool{..?p} ?x) (AveragePool{..?p} ?y))",
        (_beside("?x", "?y", "1"),),
    ),
    Law(
        "max-of-concat",
        "(MaxPool{..?p} (Concat{axis=1} ?x ?y))",
        "(Concat{axis=1} (MaxPool{..?p} ?x) (MaxPool{..?p} ?y))",
        (_beside("?x", "?y", "1"),),
    ),
    Law(
        "average-of-batches",
        "(AveragePool{..?p} (Concat{axis=0} ?x ?y))",
        "(Concat{axis=0} (AveragePool{..?p} ?x) (AveragePool{..?p} ?y))",
        (_beside("?x", "?y", "0"),),
        samples=_IMAGES,
    ),
    Law(
        "max-of-batches",
        "(MaxPool{..?p} (Concat{axis=0} ?x ?y))",
        "(Concat{axis=0} (MaxPool{..?p} ?x) (MaxPool{..?p} ?y))",
        (_beside("?x", "?y", "0"),),
        samples=_IMAGES,
    ),
    Law(
        "average-of-sum",
        "(AveragePool{..?p} (Add ?x ?y))",
        "(Add (AveragePool{..?p} ?x) (AveragePool{..?p} ?y))",
        ("same_shape(?x, ?y)",),
    ),
    Law("average-scales", "(AveragePool{..?p} (Mul ?x ?c))", "(Mul (AveragePool{..?p} ?x) ?c)", ("rank(?c) == 0",)),
    Law(
        "global-average-of-sum",
        "(GlobalAveragePool (Add ?x ?y))",
        "(Add (GlobalAveragePool ?x) (GlobalAveragePool ?y))",
        ("same_shape(?x, ?y)",),
    ),
]

LAWS: tuple[Law, ...] = (*_POINTWISE, *_PRODUCTS, *_CONVOLUTIONS, *_MOVEMENT, *_POOLS)
