"""What a float attribute stands for, and that double precision goes by it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from rlflow import _core
from rlflow.frontends.reference import evaluate
from rlflow.ops.numbers import meant


@pytest.mark.parametrize(
    ("value", "fraction"),
    [
        (0.16666667, Fraction(1, 6)),
        (float(np.float32(1 / 6)), Fraction(1, 6)),
        (float(np.float32(-2 / 3)), Fraction(-2, 3)),
        (0.2, Fraction(1, 5)),
        (0.5, Fraction(1, 2)),
        (0.0, Fraction(0)),
        (7.0, Fraction(7)),
        (0.1666, Fraction(0.1666)),
        (1 / 65, Fraction(1 / 65)),
        (1e30, Fraction(1e30)),
        (1e300, Fraction(1e300)),
    ],
)
def test_a_fraction_that_single_precision_rounds_to_it_or_the_number(value: float, fraction: Fraction) -> None:
    assert meant(value) == fraction


def test_hard_swish_in_double_precision_has_the_slope_of_its_definition() -> None:
    x = np.linspace(-5, 5, 101)
    wanted = x * np.clip(x / 6 + 0.5, 0, 1)
    for body in ("y = HardSwish(x)", "g = HardSigmoid{alpha=0.16666667, beta=0.5}(x)\ny = Mul(x, g)"):
        graph = _core.Graph.parse(f"x: f32[101] = input\n{body}\nreturn y")
        found = evaluate(graph, {"x": x}, dtype=np.float64)[0]
        assert found.dtype == np.float64
        assert np.max(np.abs(found - wanted)) < 1e-14
        single = evaluate(graph, {"x": x.astype(np.float32)})[0]
        assert single.dtype == np.float32
        assert np.max(np.abs(single - wanted)) < 1e-6
