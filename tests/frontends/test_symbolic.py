"""Dimensions as polynomials: what the core prints is read, compared and written back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlflow.errors import GraphError
from rlflow.frontends import symbolic

NAMES = st.sampled_from(["N", "S", "batch size", "it's", "x.0"])
TERMS = st.lists(st.tuples(st.lists(NAMES, max_size=3), st.integers(-9, 9)), max_size=4)
VALUES = {"N": 2, "S": 3, "batch size": 5, "it's": 7, "x.0": 11}


def build(terms: list[tuple[list[str], int]]) -> symbolic.Poly:
    total: symbolic.Poly = {}
    for names, coefficient in terms:
        if coefficient:
            total = symbolic.add(total, {tuple(sorted(names)): coefficient})
    return total


@given(TERMS)
def test_text_reads_back(terms: list[tuple[list[str], int]]) -> None:
    poly = build(terms)
    assert symbolic.parse(symbolic.text(poly) or 0) == poly


@given(TERMS, TERMS)
def test_arithmetic_agrees_with_numbers(left: list[tuple[list[str], int]], right: list[tuple[list[str], int]]) -> None:
    a, b = build(left), build(right)
    x, y = (symbolic.evaluate(symbolic.text(poly), VALUES) for poly in (a, b))
    assert symbolic.evaluate(symbolic.text(symbolic.add(a, b)), VALUES) == x + y
    assert symbolic.evaluate(symbolic.text(symbolic.multiply(a, b)), VALUES) == x * y


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64", {(): 64}),
        ("N*64+1", {("N",): 64, (): 1}),
        ("'batch size'*2", {("batch size",): 2}),
        ("-(N-3)*N", {("N", "N"): -1, ("N",): 3}),
    ],
)
def test_parsing(text: str, expected: symbolic.Poly) -> None:
    assert symbolic.parse(text) == expected


@pytest.mark.parametrize("text", ["", "N+", "(N", "N N", "N/2", "'open", "2 3"])
def test_what_is_no_dimension_is_refused(text: str) -> None:
    with pytest.raises(GraphError, match="While reading the dimension"):
        symbolic.parse(text)


def test_equality_is_only_what_is_certain() -> None:
    assert symbolic.equal("N*2+N", "3*N")
    assert symbolic.equal(4, 4)
    assert not symbolic.equal("N", "S")
    assert not symbolic.equal(None, None)


def test_names_and_products() -> None:
    assert symbolic.names(["N*S", 3, None, "'it''s'+N"]) == ["N", "S", "it's"]
    assert symbolic.product(["N", 4]) == {("N",): 4}
    assert symbolic.product(["N", None]) is None
