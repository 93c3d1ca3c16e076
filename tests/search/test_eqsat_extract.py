"""Extraction against exhaustive search, and the JSON of extraction-gym."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from egraph_oracle import cheapest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlflow._core import EGraph, Extraction
from rlflow.errors import UsageError
from rlflow.search.eqsat import DECODERS, extract, gym_graph, read_gym, write_gym
from rlflow.search.eqsat.saturation import EqSat

pytest.importorskip("highspy", reason="the ILP needs highspy (pip install 'rlflow[eqsat]')")


@st.composite
def problems(draw: st.DrawFn, acyclic: bool) -> Extraction:
    """Up to seven classes of up to three nodes. Acyclic: children have smaller numbers; class 0 always has a leaf."""
    classes = draw(st.integers(1, 7))
    node_class, cost, begin, child = [], [], [0], []
    for cls in range(classes):
        for _ in range(draw(st.integers(1, 3))):
            pool = st.integers(0, cls - 1 if acyclic else classes - 1)
            children = draw(st.lists(pool, max_size=3)) if cls or not acyclic else []
            node_class.append(cls)
            cost.append(float(draw(st.sampled_from([0, 0, 1, 2, 3, 5, 8]))))
            child += children
            begin.append(len(child))
    roots = draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=2))
    return Extraction(classes, node_class, cost, begin, child, roots)


def check(problem: Extraction, order: str) -> None:
    best = cheapest(problem)
    if math.isinf(best):
        with pytest.raises(UsageError, match="Nothing can be extracted"):
            extract(problem)
        return
    for method in DECODERS.names():
        found = extract(problem, method, order=order)
        assert found.cost >= best - 1e-9
        assert found.cost == problem.choice_cost(found.choice)
        assert found.bound <= best + 1e-6
    assert found.status == "optimal"
    assert found.cost == pytest.approx(best)
    assert found.gap == pytest.approx(0, abs=1e-6)
    small = problem.simplify()
    assert len(small.problem) <= len(problem)


@settings(max_examples=120, deadline=None)
@given(problems(acyclic=True))
def test_the_ilp_finds_the_minimum_without_order_constraints(problem: Extraction) -> None:
    check(problem, "none")


@settings(max_examples=120, deadline=None)
@given(problems(acyclic=False))
def test_the_ilp_finds_the_minimum_among_cycles(problem: Extraction) -> None:
    check(problem, "components")


def test_a_deep_graph_is_chosen_from_children_first() -> None:
    """More sets to look at than first come, first served is given. The best alternative of each class reads what the
    bottom has paid for; to a tree, which pays for it again each time, the second best is better.
    """
    depth, ways, shared = 3000, 80, 5.0
    node_class, cost, begin, child = [0], [shared], [0, 0], []
    for cls in range(1, depth):
        for way in range(ways):
            node_class.append(cls)
            cost.append(float(ways - way))
            child += [cls - 1, 0] if way % 2 else [cls - 1]
            begin.append(len(child))
    problem = Extraction(depth, node_class, cost, begin, child, [depth - 1])
    assert extract(problem, "greedy-tree").cost == shared + 2 * (depth - 1)
    assert extract(problem, "greedy-dag").cost == shared + (depth - 1)


@settings(max_examples=120, deadline=None)
@given(problems(acyclic=False))
def test_simplification_keeps_the_minimum(problem: Extraction) -> None:
    best = cheapest(problem)
    if math.isinf(best):
        return
    small = problem.simplify()
    inner = cheapest(small.problem)
    assert inner == pytest.approx(best)
    choice = small.problem.greedy_dag()
    assert problem.choice_cost(small.expand(choice)) == pytest.approx(small.problem.choice_cost(choice))


def shared_problem() -> Extraction:
    """Root 0: two cheap-looking trees of 3 over class 1 and 2, or one node of 4 over class 1 alone; class 1 costs 5."""
    return Extraction(3, [0, 0, 1, 2], [1.0, 2.0, 5.0, 4.0], [0, 2, 4, 4, 4], [1, 2, 1, 1], [0])


def test_sharing_is_paid_for_once_where_the_dag_is_looked_at() -> None:
    problem = shared_problem()
    assert extract(problem, "greedy-tree").cost == 10.0  # 1 + 5 + 4 beats 2 + 5 + 5
    assert extract(problem, "greedy-dag").cost == extract(problem).cost == 7.0


def test_a_class_that_two_branches_need_is_paid_for_once() -> None:
    """Root 0: two branches of 1 over one class of 10, or a leaf of 15."""
    problem = Extraction(4, [0, 0, 1, 2, 3], [0.0, 15.0, 1.0, 1.0, 10.0], [0, 2, 2, 3, 4, 4], [1, 2, 3, 3], [0])
    assert extract(problem, "greedy-tree").cost == 15.0
    assert extract(problem, "greedy-dag").cost == extract(problem).cost == 12.0


def test_a_choice_that_needs_itself_costs_more_than_anything() -> None:
    problem = Extraction(2, [0, 0, 1, 1], [1.0, 5.0, 1.0, 5.0], [0, 1, 1, 2, 2], [1, 0], [0])
    assert problem.choice_cost([0, 2]) == math.inf
    assert problem.choice_cost([0, 3]) == 6.0


@pytest.mark.parametrize(
    "depth", [2_000, 12_000], ids=["trees dearer than a double holds", "sets larger than memory allows"]
)
def test_deep_problems_with_much_sharing_have_a_choice(depth: int) -> None:
    """Every class reads the one below it twice, or costs more: trees double at every step, sets grow by one."""
    node_class = np.repeat(np.arange(depth), 2)
    cost = np.tile([1.0, 2.0], depth)
    child = [c - 1 for c in range(1, depth) for _ in range(4)]
    begin = [0, 0, 0, *range(2, 4 * depth - 3, 2)]
    problem = Extraction(depth, node_class, cost, begin, child, [depth - 1])
    for method in ("greedy-tree", "greedy-dag"):
        assert depth <= extract(problem, method).cost <= 2 * depth


def test_only_the_ilp_sees_that_two_classes_can_share() -> None:
    """Two roots at 3 each alone, or both over one class of 4 with free projections: the concat/split merge."""
    problem = Extraction(3, [0, 0, 1, 1, 2], [3.0, 0.0, 3.0, 0.0, 4.0], [0, 0, 1, 1, 2, 2], [2, 2], [0, 1])
    assert extract(problem, "greedy-tree").cost == extract(problem, "greedy-dag").cost == 6.0
    assert extract(problem).cost == 4.0
    assert extract(problem).needed(problem) == [2, 0, 1]


def test_a_time_limit_leaves_the_greedy_choice_and_says_the_gap(outside_data: Path) -> None:
    problem = read_gym(outside_data / "extraction_gym" / "vgg.json.gz").problem
    found = extract(problem, seconds=0.0)
    assert found.status in ("no_better_found", "limit")
    assert found.cost <= extract(problem, "greedy-dag").cost
    assert found.bound < found.cost
    assert 0 < found.gap <= 1


def hard_problem(seed: int, roots: int = 18, shared: int = 20) -> Extraction:
    """Roots that each choose two of several shared classes: sets to cover, which branching decides."""
    rng = np.random.default_rng(seed)
    node_class, cost, begin, child = [], [], [0], []
    for cls in range(shared):
        node_class.append(cls)
        cost.append(float(rng.integers(50, 99)))
        begin.append(0)
    for root in range(shared, shared + roots):
        for _ in range(5):
            node_class.append(root)
            cost.append(float(rng.integers(0, 3)))
            child.extend(int(one) for one in rng.choice(shared, 2, replace=False))
            begin.append(len(child))
    return Extraction(shared + roots, node_class, cost, begin, child, list(range(shared, shared + roots)))


def test_a_limit_of_branches_gives_the_same_choice_again() -> None:
    problem = hard_problem(3)
    short, again, whole = (extract(problem, branches=1), extract(problem, branches=1), extract(problem, seconds=30.0))
    assert (short.status, short.cost, short.bound) == (again.status, again.cost, again.bound)
    assert short.status in ("limit", "no_better_found")
    np.testing.assert_array_equal(short.choice, again.choice)
    assert short.cost >= whole.cost >= short.bound - 1e-6


@pytest.mark.parametrize(("left", "limits"), [(None, {"seconds": 100.0, "branches": 500}), (4.0, {"seconds": 2.0})])
def test_without_seconds_the_solver_has_branches(left: float | None, limits: dict[str, float]) -> None:
    """A budget of counts gives the same graph on every machine, so no clock may decide."""
    problem = SimpleNamespace(seconds_left=lambda: left)
    assert EqSat()._solver_limits(problem) == limits  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((1, [0], [-1.0], [0, 0], [], [0]), "negative"),
        ((1, [0], [math.nan], [0, 0], [], [0]), "negative or not finite"),
        ((1, [0], [1.0], [0, 1], [1], [0]), "class 1 of 1"),
        ((1, [0], [1.0], [0, 1], [], [0]), "child_begin"),
        ((1, [0, 0], [1.0], [0, 0], [], [0]), "differ in length"),
        ((2**32 - 1, [0], [1.0], [0, 0], [], [0]), "4294967295 classes"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(arguments: tuple, part: str) -> None:
    with pytest.raises(UsageError, match=part):
        Extraction(*arguments)


def test_unknown_ways_are_refused() -> None:
    with pytest.raises(UsageError, match="no extraction method 'luck'"):
        extract(shared_problem(), "luck")
    with pytest.raises(UsageError, match="Order constraints"):
        extract(shared_problem(), order="all")


GYM = [("vgg_acyclic", 112, 96), ("vgg", 2726, 1408), ("resnet50_acyclic", 266, 242), ("resnet50", 4350, 2656)]


@pytest.mark.parametrize(("name", "nodes", "classes"), GYM)
def test_gym_files_are_read_as_published(outside_data: Path, name: str, nodes: int, classes: int) -> None:
    graph = read_gym(outside_data / "extraction_gym" / f"{name}.json.gz")
    assert (len(graph.problem), graph.problem.classes) == (nodes, classes)


@pytest.mark.parametrize("name", ["vgg_acyclic", "resnet50_acyclic"])
def test_acyclic_gym_files_are_proved_optimal(outside_data: Path, name: str) -> None:
    problem = read_gym(outside_data / "extraction_gym" / f"{name}.json.gz").problem
    found = extract(problem, order="none")
    assert found.status == "optimal"
    assert found.cost <= extract(problem, "greedy-dag").cost


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_gym_files_round_trip(tmp_path: Path, suffix: str) -> None:
    egraph = EGraph("tensat")
    root = egraph.parse("(relu (matmul 0 (input x@4_8) (weight w@8_2)))")
    egraph.unite(root, egraph.parse("(matmul 2 (input x@4_8) (weight w@8_2))"))
    egraph.rebuild()
    problem = egraph.snapshot([root])
    problem.set_cost(egraph.tensat_costs(problem.node_ids))
    graph = gym_graph(egraph, problem)
    assert "num(0)" in graph.ops and "matmul" in graph.ops
    write_gym(tmp_path / f"e{suffix}", graph)
    again = read_gym(tmp_path / f"e{suffix}")
    assert sorted(zip(again.names, again.ops, again.problem.cost.tolist(), strict=True)) == sorted(
        zip(graph.names, graph.ops, problem.cost.tolist(), strict=True)
    )
    assert extract(again.problem).cost == extract(problem).cost
    assert list(tmp_path.iterdir()) == [tmp_path / f"e{suffix}"]
    raw = (tmp_path / f"e{suffix}").read_bytes()
    assert set(json.loads(gzip.decompress(raw) if suffix.endswith("gz") else raw)) == {"nodes", "root_eclasses"}


DANGLING = '{"nodes": {"a": {"op": "x", "cost": 1, "eclass": "0", "children": ["b"]}}, "root_eclasses": ["0"]}'


@pytest.mark.parametrize("content", ["", "[]", '{"nodes": {"a": {}}}', DANGLING])
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match="not an e-graph in the JSON of extraction-gym"):
        read_gym(tmp_path / "x.json")


def test_costs_are_those_that_were_set() -> None:
    problem = shared_problem()
    problem.set_cost([1, 1, 1, 1])
    assert problem.cost.tolist() == [1.0] * 4
    with pytest.raises(UsageError, match="4 nodes, and costs of shape"):
        problem.set_cost(np.ones(3))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (gzip.compress(b"{}" * 1000)[:-20], "cannot be read: Compressed file ended"),
        (gzip.compress(b"{}" * 1000)[:10] + b"\x07" * 40, "cannot be read: Error -3"),
        (b"\x1f\x8b not gzip", "cannot be read: "),
        (b"\xff" * 10_000, "is not an e-graph"),
        (b"{}", "is not an e-graph"),
    ],
    ids=["truncated", "corrupt", "a header alone", "bytes", "another document"],
)
def test_what_is_no_egraph_is_one_short_sentence(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "e.json.gz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=says) as caught:
        read_gym(path)
    assert len(str(caught.value)) < 400 + len(str(path))
