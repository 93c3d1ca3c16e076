"""Ranges of integer inputs, as the graph implies them."""

from __future__ import annotations

import pytest

from rlflow.graph import Graph, operator_counts, symbols
from rlflow.graph.ranges import input_ranges

CASES = [
    (
        "a table of 50 rows",
        "i: i64[3] = input  t: f32[50,4] = const  y = Gather{axis=0}(t, i)  return y",
        {"i": (0, 49)},
    ),
    ("another axis", "i: i64[3] = input  t: f32[50,4] = const  y = Gather{axis=1}(t, i)  return y", {"i": (0, 3)}),
    ("a float input is no index", "x: f32[3] = input  y = Relu(x)  return y", {}),
    ("an integer that indexes nothing", "i: i64[3] = input  y = Add(i, i)  return y", {}),
    (
        "through views and casts",
        """i: i32[3,2] = input
        t: f32[9,4] = const
        a = Reshape{shape=[6]}(i)
        b = Cast{to=7}(a)
        y = Gather{axis=0}(t, b)
        return y""",
        {"i": (0, 8)},
    ),
    (
        "the shortest of two tables",
        """i: i64[3] = input
        t: f32[9,4] = const
        u: f32[5,4] = const
        a = Gather{axis=0}(t, i)
        b = Gather{axis=0}(u, i)
        y = Add(a, b)
        return y""",
        {"i": (0, 4)},
    ),
    (
        "elements along an axis",
        "x: f32[2,7] = input  i: i64[2,3] = input  y = GatherElements{axis=1}(x, i)  return y",
        {"i": (0, 6)},
    ),
    (
        "tuples of indices",
        "x: f32[6,7,8] = input  i: i64[5,2] = input  y = GatherND{batch_dims=0}(x, i)  return y",
        {"i": (0, 5)},
    ),
    ("a table of unknown length", "i: i64[3] = input  t: f32[N,4] = input  y = Gather{axis=0}(t, i)  return y", {}),
]


@pytest.mark.parametrize(("text", "ranges"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_indices_stay_inside_what_they_index(text: str, ranges: dict[str, tuple[int, int]]) -> None:
    lines = "\n".join(part.strip() for part in text.replace("  ", "\n").splitlines() if part.strip())
    assert input_ranges(Graph.parse(lines)) == ranges


def test_symbols_and_counts_of_a_graph() -> None:
    graph = Graph.parse("x: f32[N,2] = input\ny: f32[N,M] = input\nz: f32[2] = const\na = Add(x, z)\nreturn a, y")
    assert symbols(graph) == ["N", "M"]
    assert operator_counts(graph) == {"Add": 1}
