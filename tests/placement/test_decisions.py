"""The tasks of ordering and fusing against plain oracles, the view of a graph, HEFT's gaps, the drawn families."""

from __future__ import annotations

import itertools
import time
from bisect import insort
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_fusing import greedy_groups

from rlflow.errors import UsageError
from rlflow.footprint import Flow, FlowJob, footprint
from rlflow.placement import PLACERS, Devices, PlacementTask, Work
from rlflow.placement.decisions import FEATURES, GraphView
from rlflow.placement.fusing import FusingTask
from rlflow.placement.level_search import AnnealedLevels
from rlflow.placement.list_schedules import _Slots
from rlflow.placement.ordering import ORDERS, OrderingTask
from rlflow.placement.sketches import FAMILIES, NetworkSketch, drawn_sketch
from rlflow.price import analytic
from rlflow.testing.placers import layered_work


def sketch_of(inputs: list[tuple[int, ...]], *, products: tuple[int, ...] = (), sizes: int = 400) -> NetworkSketch:
    n = len(inputs)
    heavy = np.isin(np.arange(n), products)
    return NetworkSketch("hand", np.full(n, 1e3), heavy, np.full(n, float(sizes)), np.zeros(n), tuple(inputs))


def fan() -> OrderingTask:
    """Four branches, each a large value made small; program order makes all large ones first."""
    jobs = [FlowJob(("x",), (f"large{k}",), k) for k in range(4)]
    jobs += [FlowJob((f"large{k}",), (f"small{k}",), 4 + k) for k in range(4)]
    jobs.append(FlowJob(tuple(f"small{k}" for k in range(4)), ("end",), 8))
    shapes = (
        {"x": (1,), "end": (1,)} | {f"large{k}": (1000 + k,) for k in range(4)} | {f"small{k}": (64,) for k in range(4)}
    )
    return OrderingTask(Flow(tuple(jobs), shapes, dict.fromkeys(shapes, 4), frozenset({"x"}), ("end",)))


# --- ordering ---------------------------------------------------------------------------------------------------------


def test_levels_make_an_order_and_its_peak_is_the_footprint() -> None:
    task = fan()
    assert task.order([0] * 9) == list(range(9))
    levels = np.array([0, 0, 0, 0, 1, 1, 1, 1, 0])
    order = task.order(levels.tolist())
    assert order == [0, 4, 1, 5, 2, 6, 3, 7, 8]
    jobs = tuple(task.flow.jobs[job] for job in order)
    value = task.evaluate(levels)
    assert value.objective == footprint(replace(task.flow, jobs=jobs)).peak
    assert (value.valid, value.evidence, task.spent) == (True, "exact", 1)
    assert value.objective < task.evaluate(np.zeros(9, int)).objective
    assert task.scores(np.stack([levels, 0 * levels])).tolist()[0] == value.objective


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_every_order_is_one_and_none_is_below_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    task = OrderingTask(drawn_sketch(list(FAMILIES)[seed % 6], 30, rng).flow())
    orders = {name: make(task) for name, make in ORDERS.items()}
    orders["levels"] = task.order(rng.integers(0, 8, task.nodes).tolist())
    for name, order in orders.items():
        place = {job: at for at, job in enumerate(order)}
        assert sorted(order) == list(range(task.nodes)), name
        assert all(place[one] < place[job] for job in order for one in task.before[job]), name
        assert task.peak(order) >= task.bound(), name


def test_the_greedy_orders_find_what_program_order_misses() -> None:
    task = fan()
    peaks = {name: task.peak(make(task)) for name, make in ORDERS.items()}
    assert peaks["greedy"] == peaks["dfs"] < peaks["program"] == peaks["bfs"]
    every = [order for order in itertools.permutations(range(8)) if _follows(task, order)][:2000]
    assert peaks["greedy"] <= min(task.peak([*order, 8]) for order in every[::100])


def _follows(task: OrderingTask, order: tuple[int, ...]) -> bool:
    return all(order.index(k) < order.index(4 + k) for k in range(4))


# --- fusing -----------------------------------------------------------------------------------------------------------


def acyclic(groups: np.ndarray, sketch: NetworkSketch) -> bool:
    """Whether the graph of groups can be emptied from its sources."""
    edges = {(groups[one], groups[node]) for node, ones in enumerate(sketch.inputs) for one in ones}
    edges = {pair for pair in edges if pair[0] != pair[1]}
    left = set(groups.tolist())
    while left:
        free = {one for one in left if not any(target == one and source in left for source, target in edges)}
        if not free:
            return False
        left -= free
    return True


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_groups_are_legal_and_cost_what_a_plain_sum_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sketch = drawn_sketch(list(FAMILIES)[seed % 6], 40, rng)
    task = FusingTask(sketch)
    levels = rng.integers(0, 8, task.nodes)
    groups = task.groups(levels)
    assert acyclic(groups, sketch)
    total = 0.0
    for group in set(groups.tolist()):
        nodes = set(np.flatnonzero(groups == group).tolist())
        assert len(nodes) <= task.most
        assert sum(bool(sketch.products[node]) for node in nodes) <= 1
        read = {one for node in nodes for one in sketch.inputs[node]} - nodes
        weights = [sketch.weight_bytes[node] for node in nodes if sketch.weight_bytes[node]]
        assert len(nodes) == 1 or len(read) + len(weights) <= task.operands
        made = [node for node in nodes if not task.readers[node] or set(task.readers[node]) - nodes]
        moved = sum(sketch.sizes[one] for one in (*read, *made)) + sum(weights)
        rates = np.where(sketch.products, analytic.GFLOPS, analytic.VECTOR_GFLOPS)
        busy = sum(float(sketch.flops[node] / rates[node]) for node in nodes) * 1e-9
        total += max(busy, moved / (analytic.GBPS * 1e9)) + 1e-6 * analytic.OVERHEAD_US
    assert task.evaluate(levels).objective == pytest.approx(total, rel=1e-9)
    assert task.bound() <= total * (1 + 1e-9)
    assert task.evaluate(levels).evidence == "analytic"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 9), st.integers(2, 8))
def test_the_groups_are_those_of_the_plain_pass(seed: int, most: int, operands: int) -> None:
    rng = np.random.default_rng(seed)
    sketch = drawn_sketch(list(FAMILIES)[seed % 6], 50, rng)
    task = FusingTask(sketch, most=most, operands=operands)
    levels = rng.integers(0, 8, task.nodes)
    assert task.groups(levels).tolist() == greedy_groups(task, levels.tolist())


@pytest.mark.parametrize(
    ("group", "says"),
    [([0, 0], "one for each node"), ([0, 1, 3], "number of a node"), ([0, -1, 2], "number of a node")],
)
def test_groups_of_something_else_are_refused(group: list[int], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        FusingTask(sketch_of([(), (0,), (1,)])).seconds(np.array(group, np.int32))


def test_what_a_node_reads_is_before_it() -> None:
    with pytest.raises(UsageError, match="what they read does not fit"):
        FusingTask(sketch_of([(1,), ()]))


def test_level_zero_fuses_nothing_and_priority_decides_between_rivals() -> None:
    #  0 -> 1 (product), 0 -> 2 (product): 0 joins only one of them where it comes to that; 3 reads 1 and 2
    sketch = sketch_of([(), (0,), (1,), (2,)], products=(1, 3))
    task = FusingTask(sketch)
    assert task.groups(np.zeros(4, int)).tolist() == [0, 1, 2, 3]
    assert task.groups(np.ones(4, int)).tolist() == [0, 0, 0, 3]
    assert task.groups(np.array([1, 0, 2, 0])).tolist() == [0, 0, 2, 2]
    assert task.groups(np.array([0, 1, 2, 0])).tolist() == [0, 1, 2, 2]
    alone, joined = task.scores([[0, 0, 0, 0], [1, 1, 1, 1]])
    assert joined < alone


def test_a_pair_whose_joining_would_close_a_cycle_is_left_apart() -> None:
    # 0 -> 1 -> 2 and 0 -> 2; 1 is a product with 0 too heavy: 0 and 2 may not be one group around 1
    sketch = sketch_of([(), (0,), (0, 1)], products=(1, 2))
    groups = FusingTask(sketch).groups(np.array([2, 0, 0]))
    assert acyclic(groups, sketch)
    blocked = sketch_of([(), (0,), (0, 1), ()], products=(0, 1))
    assert FusingTask(blocked).groups(np.array([1, 0, 0, 0])).tolist() == [0, 1, 2, 3]


@settings(deadline=None)
@given(nodes=st.integers(1, 14), levels=st.integers(2, 14), edges=st.integers(0, 30), seed=st.integers(0, 2**32 - 1))
def test_an_order_becomes_levels(nodes: int, levels: int, edges: int, seed: int) -> None:
    """The same order again where the levels suffice; with the fewest that do, by trying all of them."""
    rng = np.random.default_rng(seed)
    inputs: list[set[int]] = [set() for _ in range(nodes)]
    for reader in rng.integers(1, nodes, edges).tolist() if nodes > 1 else []:
        inputs[reader].add(int(rng.integers(reader)))
    sketch = sketch_of([tuple(sorted(ones)) for ones in inputs])
    task, many = OrderingTask(sketch.flow(), levels), OrderingTask(sketch.flow(), 100)
    order = many.order(rng.random(nodes).tolist())
    found, exact = task.levels_of(order), many.levels_of(order)
    assert found.dtype == np.int32 and found.min() >= 0 and found.max() == levels - 1
    assert many.order(exact.tolist()) == order
    assert sorted(task.order(found.tolist())) == list(range(nodes))
    needed = len(set(exact.tolist()))
    assert len(set(found.tolist())) == min(needed, levels)
    if needed <= levels:
        assert task.order(found.tolist()) == order
    if nodes <= 5 and needed > 1:
        fewer = itertools.product(range(needed - 1), repeat=nodes)
        assert all(many.order(list(row)) != order for row in fewer)


@pytest.mark.parametrize(
    ("levels", "part"),
    [([0, 1], "whole numbers"), ([0, 1, 8, 0], "0 to 7"), ([0, 0, -1, 0], "got -1"), ([0.0] * 4, "float")],
)
def test_bad_levels_are_refused(levels: list, part: str) -> None:
    sketch = sketch_of([(), (0,), (1,), (2,)])
    for task in (FusingTask(sketch), OrderingTask(sketch.flow())):
        with pytest.raises(UsageError, match=part):
            task.evaluate(np.array(levels))


def test_annealing_is_no_worse_than_where_it_begins() -> None:
    sketch = drawn_sketch("nasnet", 60, np.random.default_rng(3))
    for task in (FusingTask(sketch), OrderingTask(sketch.flow())):
        start = np.random.default_rng(1).integers(0, 8, (2, task.nodes))
        first = task.scores(start).min()
        before = task.spent
        score, found = AnnealedLevels(150).decide(task, np.random.default_rng(0), tuple(start))
        assert task.spent - before == 150
        assert score == task.scores(found[None])[0] <= first
        with pytest.raises(UsageError, match="at least 3"):
            AnnealedLevels(2).decide(task, np.random.default_rng(0), tuple(start))


# --- graphs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_graphs_of_any_size_that_depend_on_the_seed_alone(family: str) -> None:
    for nodes in (60, 400):
        one, again, other = (drawn_sketch(family, nodes, np.random.default_rng(seed)) for seed in (1, 1, 2))
        assert 0.4 * nodes < one.nodes < 2.0 * nodes
        assert one.inputs == again.inputs
        assert np.array_equal(one.flops, again.flops)
        assert one.inputs != other.inputs or not np.array_equal(one.flops, other.flops)
        assert all(max(ones, default=-1) < node for node, ones in enumerate(one.inputs))
        assert one.products.any()
        assert not one.products.all()
        assert (one.seconds() > 0).all()
        assert one.work().tasks == len(one.flow().jobs) == one.nodes


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(UsageError, match="rnnlm, gnmt"):
        drawn_sketch("vgg", 10, np.random.default_rng(0))


def test_a_view_by_hand() -> None:
    # numbers against the order, so that places are not numbers: 2 -> 0 -> 1, 2 -> 1
    work = Work.of_edges([1.0, 1.0, 2.0], [(2, 0), (0, 1), (2, 1)], [10.0, 10.0, 10.0])
    view = GraphView.of(work, Devices.alike(4, bandwidth=10.0, latency=0.0), [False, True, False])
    assert view.order.tolist() == [2, 0, 1]
    assert sorted(zip(view.source.tolist(), view.target.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 2)]
    column = {name: view.features[:, at].tolist() for at, name in enumerate(FEATURES)}
    assert column["way_to_the_end"] == [1.0, 0.5, 0.25]
    assert column["way_from_the_start"] == [0.5, 0.75, 1.0]
    assert column["slack"] == [0.0, 0.0, 0.0]
    assert column["product"] == [0.0, 0.0, 1.0]
    assert column["work_before"] == [0.5, 0.75, 1.0]
    assert column["choices"] == [0.5] * 3
    assert column["readers"] == pytest.approx(np.log1p([2, 1, 0]).tolist())
    assert view.seconds.tolist() == [0.5, 0.25, 0.25]
    assert view.told(np.array([[7, 8, 9]])).tolist() == [[8, 9, 7]]


def test_a_view_does_not_depend_on_units() -> None:
    work = layered_work(np.random.default_rng(0), 5, 4)
    other = Work(work.seconds * 60, work.maker, work.bytes * 8, work.readers, work.kept)
    one = GraphView.of(work, Devices.alike(2, bandwidth=1e9, latency=1e-6))
    two = GraphView.of(other, Devices.alike(2, bandwidth=8e9 / 60, latency=6e-5))
    assert np.allclose(one.features, two.features, atol=1e-6)
    lanes = one.features[:, FEATURES.index("lane")].reshape(5, 4)
    assert np.allclose(lanes, [[0, 0.25, 0.5, 0.75]] * 5)


# --- HEFT's gaps ------------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6))
def test_gaps_are_what_looking_at_every_slot_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seconds = rng.integers(1, 6, 40).astype(float)
    kept, slots = _Slots(seconds), []
    for takes in seconds.tolist():
        ready, last = float(rng.integers(0, 60)), 0.0
        for begin, end in slots:
            if max(last, ready) + takes <= begin:
                break
            last = end
        start = max(last, ready)
        assert kept.earliest(ready, takes) == start
        kept.take(start, takes)
        insort(slots, (start, start + takes))


def test_what_takes_no_time_waits_for_nobody() -> None:
    slots = _Slots(np.array([2.0, 0.0]))
    for start in (0.0, 2.0, 4.0):
        slots.take(start, 2.0)
    assert slots.earliest(3.0, 0.0) == 4.0
    assert slots.earliest(7.0, 0.0) == 7.0


def test_heft_is_not_quadratic() -> None:
    """A guard; reproduce/go measures."""
    task = PlacementTask(layered_work(np.random.default_rng(0), 1000, 8), Devices.alike(4))
    began = time.thread_time()
    PLACERS.make("heft").decide(task, np.random.default_rng(0))
    assert time.thread_time() - began < 6.0
