"""What conditions know of constants that are computed in the graph."""

from __future__ import annotations

import pytest

from rlflow import _core
from rlflow.rewrite import all_shipped

HALF_IS_ROOT = all_shipped()["power-half-is-root"].core
X = "x: f32[2,3] = input\n"
HALF = "h: f64[] = const 0.5\n"


def matches(constant: str) -> int:
    graph = _core.Graph.parse(f"{X}{constant}\ny = Pow(x, c)\nreturn y")
    return len(_core.State(graph, _core.RuleSet([HALF_IS_ROOT])).moves())


@pytest.mark.parametrize(
    "constant",
    [
        HALF + "c: f32[] = Cast{to=1}(h)",
        HALF + "a: f32[] = Cast{to=1}(h)\nc = Unsqueeze{axes=[0]}(a)",
        HALF + "a: f32[] = Cast{to=1}(h)\nc = Expand{shape=[2,3]}(a)",
        "h: f32[] = const 2.0\nc = Reciprocal(h)",
        "a: f32[] = const 3.0\nb: f32[1] = const [6.0]\nc = Div(a, b)",
    ],
)
def test_they_are_seen_through(constant: str) -> None:
    assert matches(constant) == 1


@pytest.mark.parametrize(
    "constant",
    [
        "h: f64[] = const 0.50000000001\nc: f32[] = Cast{to=1}(h)",  # single precision rounds it to 0.5
        "h: i64[] = const 0\nc: f32[] = Cast{to=1}(h)",
        "h: f32[2] = const [0.5, 1.0]\na = Unsqueeze{axes=[1]}(h)\nc = Expand{shape=[2,3]}(a)",
        "a: f32[] = const 1.0\nb: f32[] = const 0.0\nc = Div(a, b)",
        "a: f32[] = const 0.25\nc = Sqrt(a)",  # not looked into
        "c: f32[] = input",
    ],
)
def test_what_is_not_certain_is_unknown(constant: str) -> None:
    assert matches(constant) == 0
