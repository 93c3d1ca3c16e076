"""Field arithmetic against Python's integers, and what keyed functions promise."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlflow.synthesis import field
from rlflow.synthesis.domains import Field, Ordered

P = field.PRIME
residues = st.integers(0, P - 1)
edges = st.sampled_from([0, 1, 2, P - 1, P - 2, 1 << 60, (1 << 31) - 1, 1 << 31, (1 << 30) + 1])
element = st.one_of(residues, edges)


def word(x: int) -> np.ndarray:
    return np.asarray([x], np.uint64)


@given(element, element)
def test_arithmetic_is_that_of_integers_mod_p(a: int, b: int) -> None:
    assert int(field.add(word(a), word(b))[0]) == (a + b) % P
    assert int(field.sub(word(a), word(b))[0]) == (a - b) % P
    assert int(field.mul(word(a), word(b))[0]) == a * b % P
    assert int(field.neg(word(a))[0]) == -a % P


@given(element)
def test_inverse(a: int) -> None:
    inverse = int(field.inverse(word(a))[0])
    assert inverse * a % P == (1 if a else 0)


@given(st.lists(element, min_size=1, max_size=50))
def test_total(values: list[int]) -> None:
    assert int(field.total(np.array(values, np.uint64))) == sum(values) % P


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6))
def test_fractions_are_quotients(n: int, d: int) -> None:
    assert field.from_fraction(Fraction(n, d)) * d % P == n % P


def test_domains_agree_with_rational_arithmetic() -> None:
    rng = np.random.default_rng(0)
    ordered = Ordered()
    a, b = ordered.random(rng, (3, 4)), ordered.random(rng, (4,))
    b = np.where(b == 0, Fraction(1), b)
    residue = np.vectorize(field.from_fraction, otypes=[np.uint64])
    for name in ("add", "sub", "mul", "div"):
        exact = getattr(ordered, name)(a, b)
        assert (getattr(Field(), name)(residue(a), residue(b)) == residue(exact)).all()


def test_a_keyed_function_is_a_function_and_keys_differ() -> None:
    x = field.random(np.random.default_rng(1), (100,))
    with np.errstate(over="ignore"):
        assert (field.oracle(1, x) == field.oracle(1, x.copy())).all()
        assert not (field.oracle(1, x) == field.oracle(2, x)).any()
        assert not (field.oracle(1, x, x[::-1]) == field.oracle(1, x[::-1], x)).any()


@pytest.mark.parametrize("domain", [Field(), Ordered()], ids=["field", "ordered"])
def test_zero_preserving_and_row_functions(domain) -> None:
    rng = np.random.default_rng(2)
    x = domain.random(rng, (2, 3))
    with np.errstate(over="ignore"):
        assert domain.function(7, domain.zeros((2,)), zero=True)[0] == domain.zeros(())
        rows = domain.rows(7, x)
        assert (rows[0] == domain.rows(7, x[:1])[0]).all()
        assert (rows == domain.rows(7, x[:, ::-1])).sum() < rows.size


def test_monotone_functions_do_not_decrease() -> None:
    domain = Ordered()
    x = np.array(sorted(domain.random(np.random.default_rng(3), (40,))), dtype=object)
    for key in range(20):
        y = domain.unary(key, x, zero=False, monotone=True, symmetry="point")
        assert all(a <= b for a, b in pairwise(y))


def test_keys_do_not_depend_on_the_process() -> None:
    code = "from rlflow.synthesis.field import key_of; print(key_of('a', 1, [2.5]))"
    out = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": "", "PYTHONPATH": "."},
        )
        for seed in ("1", "2")
    ]
    assert out[0].stdout == out[1].stdout == f"{field.key_of('a', 1, [2.5])}\n"


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 3), (3, 4)),
        ((12, 20), (20, 9)),  # many products: in limbs
        ((3, 1, 5, 9), (2, 9, 60)),
        ((2, 512), (512, 2)),  # the longest sums that limbs hold
        ((1, 4095), (4095, 2)),  # longer ones: sums of odd products would be rounded
    ],
)
@pytest.mark.parametrize("largest", [False, True])
def test_products_of_matrices_are_those_of_integers(
    left: tuple[int, ...], right: tuple[int, ...], largest: bool
) -> None:
    rng = np.random.default_rng(4)
    a, b = (np.full(s, P - 1, np.uint64) if largest else field.random(rng, s) for s in (left, right))
    assert (field.matmul(a, b).astype(object) == np.matmul(a.astype(object), b.astype(object)) % P).all()


@given(st.lists(element, max_size=20))
def test_inverses_of_many_are_those_of_each(values: list[int]) -> None:
    assert field.inverses(values) == [pow(v, -1, P) if v else 0 for v in values]
