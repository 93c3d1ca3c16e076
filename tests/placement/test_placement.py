"""The simulator against plain Python, every placer against the suite, bounds and optima against enumeration."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import random_work, simulate

from rlflow.errors import UsageError
from rlflow.placement import PLACERS, Devices, PlacementTask, Work, lower_bound
from rlflow.placement.optimum import Exact, optimum
from rlflow.testing.placers import check_placer, layered_work

NEEDS_HIGHS = pytest.mark.skipif(Exact.available() is not None, reason=str(Exact.available()))
SEARCHING = ("annealing", "brkga", "random")


def random_devices(rng: np.random.Generator, count: int) -> Devices:
    between = 1.0 - np.eye(count)
    return Devices(
        tuple("abcdefgh"[:count]),
        rng.uniform(0.5, 2.0, count),
        rng.uniform(3.0, 9.0, count),
        rng.uniform(0.01, 0.3, (count, count)) * between,
        rng.uniform(0.1, 1.0, (count, count)) * between,
        bool(rng.integers(2)),
    )


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 14), st.integers(1, 4))
def test_the_simulator_is_what_the_plain_one_says(seed: int, tasks: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    work, devices = random_work(rng, tasks), random_devices(rng, count)
    device = rng.integers(0, count, tasks)
    priority = rng.permutation(tasks).astype(float)
    task = PlacementTask(work, devices)
    makespan, finish, peaks = simulate(work, devices, device.tolist(), priority.tolist())
    found = task.evaluate(device, priority)
    assert found.objective == pytest.approx(makespan, rel=1e-9)
    assert task.timeline(device, priority)[1] == pytest.approx(finish, rel=1e-9)
    assert found.peak == pytest.approx(peaks, rel=1e-9)
    assert found.valid == bool((found.peak <= devices.memory).all())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_without_priorities_the_first_that_is_ready_goes_first(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    work = layered_work(rng, 4, 3)
    devices = random_devices(rng, count)
    device = rng.integers(0, count, work.tasks)
    makespan, *_ = simulate(work, devices, device.tolist())
    assert PlacementTask(work, devices).evaluate(device).objective == pytest.approx(makespan, rel=1e-9)


def test_a_chain_by_hand() -> None:
    work = Work.of_edges([1.0, 2.0, 3.0], [(0, 1), (1, 2)], [10.0, 20.0, 30.0])
    task = PlacementTask(work, Devices.alike(2, bandwidth=10.0, latency=0.5))
    together, apart = task.evaluate(np.array([0, 0, 0])), task.evaluate(np.array([0, 1, 1]))
    assert together.objective == 6.0
    assert together.peak.tolist() == [50.0, 0.0]
    assert apart.objective == 1.0 + 0.5 + 1.0 + 5.0
    assert apart.busy.tolist() == [1.0, 5.0]
    assert lower_bound(task) == 6.0
    assert task.spent == 2


def test_a_link_carries_one_transfer_at_a_time_or_all() -> None:
    work = Work.of_edges([1.0, 1.0, 1.0], [(0, 2), (1, 2)], [10.0, 10.0, 1.0])
    placement = np.array([0, 0, 1])
    shared = Devices.alike(2, bandwidth=1.0, latency=0.0)
    wide = Devices.alike(2, bandwidth=1.0, latency=0.0, serial_links=False)
    assert PlacementTask(work, shared).evaluate(placement).objective == 1.0 + 10.0 + 10.0 + 1.0
    assert PlacementTask(work, wide).evaluate(placement).objective == 2.0 + 10.0 + 1.0


def test_scores_put_every_valid_placement_first() -> None:
    work = Work.of_edges([1.0, 1.0], [(0, 1)], [10.0, 10.0])
    task = PlacementTask(work, Devices.alike(2, memory=15.0, bandwidth=0.01))
    both, apart = task.scores([[0, 0], [0, 1]])
    assert task.evaluate(np.array([0, 0])).valid is False
    assert both > task.horizon
    assert apart == both or apart > task.horizon  # the second device holds both values, too
    assert not task.evaluate(np.array([0, 1])).valid


@pytest.mark.parametrize("name", [name for name in PLACERS.names() if name not in ("exact", "go")])
def test_every_placer_keeps_to_the_contract(name: str) -> None:
    options = {"evaluations": 200} if name in SEARCHING else {}
    check_placer(lambda: PLACERS.make(name, **options), evaluations=200 if options else None)


@NEEDS_HIGHS
def test_the_exact_placer_keeps_to_the_contract() -> None:
    check_placer(lambda: PLACERS.make("exact", seconds=2.0))


def test_the_suite_finds_a_placer_that_names_no_device() -> None:
    class Wrong:
        name = "wrong"

        def decide(self, task: PlacementTask, rng: np.random.Generator) -> np.ndarray:
            return np.full(task.nodes, task.choices)

    with pytest.raises(AssertionError, match="not there"):
        check_placer(Wrong)


@NEEDS_HIGHS
@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_is_what_enumeration_finds(seed: int) -> None:
    """Without contention: over all placements and all orders of priority the best is the programme's optimum."""
    rng = np.random.default_rng(seed)
    work = layered_work(rng, 3, 2)
    devices = Devices.alike(2, bandwidth=1e9, latency=1e-4, serial_links=False)
    task = PlacementTask(work, devices)
    best = None
    if seed < 2:
        placements = [np.array((0, *rest)) for rest in itertools.product(range(2), repeat=work.tasks - 1)]
        orders = [np.array(order, float) for order in itertools.permutations(range(work.tasks))]
        best = min(task.evaluate(one, order).objective for one in placements for order in orders)
    found = optimum(task, seconds=20.0)
    assert found.evidence == "exact"
    assert found.objective == pytest.approx(found.bound, rel=1e-6)
    if best is not None:
        assert found.objective == pytest.approx(best, rel=1e-6)
    for name in ("heft", "etf", "critical-path", "single", "contiguous"):
        value = task.evaluate(PLACERS.make(name).decide(task, rng))
        assert value.objective >= found.bound * (1 - 1e-6)


def test_search_is_no_worse_than_the_schedule_that_it_begins_with() -> None:
    task = PlacementTask(layered_work(np.random.default_rng(5), 12, 6), Devices.alike(4, bandwidth=2e9))
    rng = np.random.default_rng(0)
    scores = {name: task.evaluate(PLACERS.make(name).decide(task, rng)).objective for name in ("heft", "single", "etf")}
    annealed = task.evaluate(PLACERS.make("annealing:evaluations=1000").decide(task, rng)).objective
    bred = task.evaluate(PLACERS.make("brkga:evaluations=1000").decide(task, rng)).objective
    assert annealed <= scores["heft"]
    assert bred <= scores["heft"]
    assert scores["heft"] < scores["single"]
    assert annealed >= lower_bound(task)


@pytest.mark.parametrize("back", [1, 10])
def test_annealing_that_goes_back_to_its_best_is_not_lost_where_it_is_hot(back: int) -> None:
    """So hot that every move is made: without a way back that is a walk without aim."""
    task = PlacementTask(layered_work(np.random.default_rng(5), 12, 6), Devices.alike(4, bandwidth=2e8))
    found = {}
    for every in (0, back):
        placer = PLACERS.make("annealing", evaluations=600, hottest=1e9, coldest=1e9, back=every)
        before = task.spent
        found[every] = task.scores(placer.decide(task, np.random.default_rng(0))[None])[0]
        assert task.spent - before == 600 + 1
    assert found[back] < 0.99 * found[0]
    with pytest.raises(UsageError, match="goes back after some"):
        PLACERS.make("annealing", back=-1).decide(task, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda task: task.evaluate(np.zeros(2, int)), "whole numbers"),
        (lambda task: task.evaluate(np.zeros(3)), "float64"),
        (lambda task: task.evaluate(np.array([0, 5, 0])), "device 5 of 2"),
        (lambda task: task.scores(np.array([[0, 0, -1]])), "device -1"),
    ],
)
def test_bad_decisions_are_refused(call, part: str) -> None:
    task = PlacementTask(Work.of_edges([1.0, 1.0, 1.0], [(0, 1)], [1.0, 1.0, 1.0]), Devices.alike(2))
    with pytest.raises(UsageError, match=part):
        call(task)


def test_a_cycle_is_refused() -> None:
    with pytest.raises(UsageError, match="cycle"):
        PlacementTask(Work.of_edges([1.0, 1.0], [(0, 1), (1, 0)], [1.0, 1.0]), Devices.alike(2))


def test_a_million_events_take_seconds_at_most() -> None:
    """A guard against the quadratic, not a benchmark: reproduce/go measures."""
    task = PlacementTask(layered_work(np.random.default_rng(0), 1000, 20), Devices.alike(4))
    placement = np.random.default_rng(1).integers(0, 4, (5, task.nodes))
    began = time.thread_time()
    task.scores(placement)
    assert time.thread_time() - began < 5.0
