"""Powers and the functions made of Exp: laws that hold, and laws that must not be assumed."""

from __future__ import annotations

import numpy as np
import pytest

from rlflow import _core
from rlflow.synthesis import field
from rlflow.synthesis.domains import Field
from rlflow.synthesis.semantics import Evaluator

HEAD = "x: f32[3,5] = input\none: f32[] = const 1.0\ntwo: f32[] = const 2.0\n"

EQUAL = {
    "sigmoid": ("y = Sigmoid(x)", "e = Exp(x)\nd = Add(e, one)\ny = Div(e, d)"),
    "sigmoid-of-minus": ("n = Neg(x)\ny = Sigmoid(n)", "s = Sigmoid(x)\ny = Sub(one, s)"),
    "tanh-is-odd": ("n = Neg(x)\ny = Tanh(n)", "t = Tanh(x)\ny = Neg(t)"),
    "log-undoes-exp": ("e = Exp(x)\ny = Log(e)", "y = Identity(x)"),
    "exp-undoes-log": ("l = Log(x)\ny = Exp(l)", "y = Identity(x)"),
    "exp-of-minus": ("n = Neg(x)\ny = Exp(n)", "e = Exp(x)\ny = Reciprocal(e)"),
    "log-of-inverse": ("r = Reciprocal(x)\ny = Log(r)", "l = Log(x)\ny = Neg(l)"),
    "softplus": ("y = Softplus(x)", "e = Exp(x)\nd = Add(e, one)\ny = Log(d)"),
    "mish": ("y = Mish(x)", "s = Softplus(x)\nt = Tanh(s)\ny = Mul(x, t)"),
    "swish": ("y = Swish{alpha=2.0}(x)", "a = Mul(x, two)\ns = Sigmoid(a)\ny = Mul(x, s)"),
    "exp-of-double": ("a = Mul(x, two)\ny = Exp(a)", "e = Exp(x)\ny = Mul(e, e)"),
    "exp-of-half": ("e = Exp(x)\ny = Identity(e)", "h = Div(x, two)\ne = Exp(h)\ny = Mul(e, e)"),
    "tanh-by-sigmoid": ("t = Tanh(x)\ny = Add(t, one)", "a = Mul(x, two)\ns = Sigmoid(a)\ny = Mul(s, two)"),
    "softplus-of-minus": ("n = Neg(x)\ny = Softplus(n)", "s = Softplus(x)\ny = Sub(s, x)"),
    "softplus-by-magnitude": (
        "y = Softplus(x)",
        "r = Relu(x)\nm = Abs(x)\nn = Neg(m)\ne = Exp(n)\na = Add(e, one)\nl = Log(a)\ny = Add(r, l)",
    ),
    "positive-and-negative-part": ("y = Identity(x)", "r = Relu(x)\nn = Neg(x)\nm = Relu(n)\ny = Sub(r, m)"),
    "magnitude-squared": ("a = Abs(x)\ny = Mul(a, a)", "y = Mul(x, x)"),
    "square": ("y = Pow(x, two)", "y = Mul(x, x)"),
    "root": ("h: f32[] = const 0.5\ny = Pow(x, h)", "y = Sqrt(x)"),
    "inverse-root": ("h: f32[] = const -1.5\ny = Pow(x, h)", "s = Sqrt(x)\nm = Mul(x, s)\ny = Reciprocal(m)"),
    "power-of-nothing": ("h: f32[] = const 0.0\ny = Pow(x, h)", "d = Sub(x, x)\ny = Add(d, one)"),
}
UNEQUAL = {
    "exp-of-sum": ("a = Add(x, one)\ny = Exp(a)", "e = Exp(x)\nf = Exp(one)\ny = Add(e, f)"),
    "mish-with-another-constant": ("y = Mish(x)", "s = Sigmoid(x)\nt = Tanh(s)\ny = Mul(x, t)"),
    "tanh-of-double": ("a = Mul(x, two)\ny = Tanh(a)", "t = Tanh(x)\ny = Mul(t, two)"),
    "exp-of-triple": ("a = Add(x, x)\nb = Add(a, x)\ny = Exp(b)", "e = Exp(x)\nf = Mul(e, e)\ny = Mul(e, f)"),
    "softplus-of-double": ("a = Add(x, x)\ny = Softplus(a)", "s = Softplus(x)\ny = Add(s, s)"),
    "unknown-power": ("h: f32[] = const 0.3\ny = Pow(x, h)", "y = Sqrt(x)"),
    "fifth-power": ("h: f32[] = const 5.0\ny = Pow(x, h)", "h: f32[] = const 4.0\ny = Pow(x, h)"),
}


def value(lines: str, domain: Field | None = None) -> np.ndarray:
    graph = _core.Graph.parse(f"{HEAD}{lines}\nreturn y")
    evaluator = Evaluator(domain or Field(signs=True), seed=7)
    return evaluator.run(graph, evaluator.inputs(graph, {}))[0]


@pytest.mark.parametrize("name", EQUAL)
def test_laws(name: str) -> None:
    left, right = EQUAL[name]
    domain = Field(signs=True)
    assert np.array_equal(value(left, domain), value(right, domain))


@pytest.mark.parametrize("name", UNEQUAL)
def test_no_other_laws(name: str) -> None:
    left, right = UNEQUAL[name]
    domain = Field(signs=True)
    assert not np.any(value(left, domain) == value(right, domain))


def test_exp_is_never_zero_and_one_at_zero() -> None:
    zero = value("z = Sub(x, x)\ny = Exp(z)")
    assert np.all(zero == 1)
    assert np.all((value("y = Exp(x)") != 0) & (value("y = Exp(x)") < field.PRIME))


def test_a_sign_is_either_and_odd() -> None:
    kept = value("y = Relu(x)") == value("y = Identity(x)")
    turned = value("n = Neg(x)\ny = Relu(n)") == 0
    assert np.array_equal(kept, turned)
    assert 0 < np.count_nonzero(kept) < kept.size
