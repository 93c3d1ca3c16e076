"""Walks, and what a policy sees on them."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import BY_NAME, tiny_episode

from rlflow import price
from rlflow.graph import Graph
from rlflow.graph.features import EDGE_COLUMNS, NODE_COLUMNS, GraphFeatures
from rlflow.nn.observation import DELTA_COLUMNS, GLOBAL_COLUMNS, STOP_RULE
from rlflow.ops import op_names
from rlflow.testing import TINY, random_graph


def column(name: str) -> int:
    return NODE_COLUMNS.index(name)


def test_a_small_graph_as_arrays() -> None:
    graph = Graph.parse(
        """
        x: f32[2,64] = input
        w: f32[64,256] = const
        p = MatMul(x, w)
        a, b = Split{axis=1, split=[128,128]}(p)
        y = Add(a, b)
        return y
        """
    )
    found = GraphFeatures.of(graph, price.make("analytic", fusion="none").pricer)
    assert [op_names()[op] for op in found.op] == ["Input", "MatMul", "Split", "Add"]
    assert found.node.shape == (4, len(NODE_COLUMNS))
    assert list(zip(found.source.tolist(), found.target.tolist(), strict=True)) == [(0, 1), (1, 2), (2, 3), (2, 3)]
    assert found.edge[:, EDGE_COLUMNS.index("operand slot")].tolist() == [0, 0, 0, 0.25]
    assert found.edge[:, EDGE_COLUMNS.index("output index")].tolist() == [0, 0, 0, 0.25]
    product = found.node[1]
    assert product[:4].tolist() == [0, 0, 1 / 8, 1]  # log2 of 2 and of 256, in eighths
    assert product[column("constant operands")] == product[column("operands")] == 0.25
    assert product[column("log constant elements")] == pytest.approx(np.log2(1 + 64 * 256) / 16)
    assert found.node[:, column("share of the cost of its region")].sum() == pytest.approx(1)
    assert found.node[:, column("is graph output")].tolist() == [0, 0, 0, 1]
    assert found.node[:, column("has no price")].tolist() == [1, 0, 0, 0]
    assert [found.row[n] for n in graph.order() if graph.is_const(n)] == [-1]
    assert (GraphFeatures.of(graph).node[:, column("has no price")] == 1).all()


@pytest.mark.parametrize("seed", range(6))
def test_features_agree_with_the_graph(seed: int) -> None:
    """Against the graph's own face, node by node: an oracle for the core's arrays."""
    graph = random_graph(seed, 25)
    found = GraphFeatures.of(graph, price.make("analytic").pricer)
    nodes = [n for n in graph.order() if not graph.is_const(n)]
    assert [op_names()[op] for op in found.op] == [graph.op(n) for n in nodes]
    assert found.row[nodes].tolist() == list(range(len(nodes)))
    edges = [
        (found.row[graph.producer(v)], found.row[n])
        for n in nodes
        for v in graph.node_inputs(n)
        if v >= 0 and not graph.is_const(graph.producer(v))
    ]
    assert list(zip(found.source.tolist(), found.target.tolist(), strict=True)) == edges
    for row, n in enumerate(nodes):
        shape = graph.shape(graph.node_outputs(n)[0])
        last = [0.0] * (4 - len(shape[-4:])) + [np.log2(max(dim, 1)) / 8 for dim in shape[-4:]]
        np.testing.assert_allclose(found.node[row, :4], last, rtol=1e-6)
        assert found.node[row, column("is graph output")] == any(graph.output_uses(v) for v in graph.node_outputs(n))
    assert np.isfinite(found.node).all()
    assert np.isfinite(found.edge).all()


@pytest.mark.parametrize("tiny", TINY, ids=lambda tiny: tiny.name)
def test_an_observation_holds_together(tiny) -> None:
    episode = tiny_episode(tiny.name, children=True)
    while True:
        seen = episode.observe()
        k = episode.candidates
        assert seen.rule.shape == (k,)
        assert seen.rule[0] == STOP_RULE
        assert seen.delta.shape == (k, len(DELTA_COLUMNS))
        assert seen.delta[:, -1].tolist() == [1] + [0] * (k - 1)
        assert seen.globals.shape == (len(GLOBAL_COLUMNS),)
        assert len(seen.children) == k
        assert (np.diff(seen.touched_by) >= 0).all()
        assert seen.touched_by.min(initial=1) >= 1
        assert seen.touched.max(initial=-1) < len(seen.graph.op)
        for candidate in range(1, k):
            rows = seen.touched[seen.touched_by == candidate]
            ids = episode.place.table.touched(candidate - 1)
            assert rows.tolist() == [r for r in seen.graph.row[ids] if r >= 0]
        assert np.isfinite(seen.delta).all()
        if episode.ended or k == 1:
            break
        episode.step(1)


def test_gains_are_seen_and_visited_graphs_are_marked() -> None:
    episode = tiny_episode("plateau", horizon=50)
    visited = DELTA_COLUMNS.index("was visited")
    assert not episode.observe().delta[:, visited].any()
    episode.step(1)
    assert episode.observe().delta[:, visited].any()  # the way back
    gains = tiny_episode("twins").observe().delta[:, DELTA_COLUMNS.index("gain")]
    assert gains[0] == 0 < gains[1:].min()


def test_walks_that_go_alike_open_nothing_twice() -> None:
    first = tiny_episode("twins")
    for _ in range(3):
        first.step(1)
    walks = first.walks
    assert walks.expansions == 3
    from rlflow.env import Episode, Improvement

    again = Episode(walks, Improvement(), 12)
    for _ in range(3):
        again.step(1)
    assert walks.expansions == 3
    assert again.place is first.place
    again.step(1)
    assert walks.expansions == walks.problem.meter.expansions == 4


def test_a_graph_is_opened_once_by_whatever_way() -> None:
    episode = tiny_episode("plateau", horizon=50)
    there = [episode.place.node.digest]
    for _ in range(8):  # to and fro
        episode.step(1 if episode.steps % 2 else episode.candidates - 1)
        there.append(episode.place.node.digest)
    assert episode.walks.expansions == len(set(there)) - 1 < 8


def test_a_short_memory_changes_nothing_but_the_work() -> None:
    from rlflow.env import Episode, Improvement, Walks
    from rlflow.env.spec import ENDLESS

    walks = Walks(BY_NAME["twins"].problem(ENDLESS), keep=1)
    found = []
    for _ in range(2):
        episode = Episode(walks, Improvement(), 12)
        found.append([episode.step(action) for action in (2, 1, 3)])
    assert found[0] == found[1]
    assert walks.expansions == 6


def test_patience_cuts_a_walk_that_finds_nothing_better() -> None:
    episode = tiny_episode("twins", horizon=50, patience=2)
    while not episode.ended:
        episode.step(1)  # each step is a gain
    assert episode.terminated
    episode = tiny_episode("plateau", horizon=50, patience=2)
    episode.step(1)
    assert not episode.ended
    episode.step(1)
    assert episode.truncated
    assert not episode.terminated
