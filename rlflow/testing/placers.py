"""The conformance suite of placers: what every one of them has to keep to, run over all in :data:`PLACERS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rlflow.placement import Devices, PlacementTask, Placer, Work, lower_bound

__all__ = ["check_placer", "layered_work", "placement_problems"]


def layered_work(rng: np.random.Generator, layers: int, width: int) -> Work:
    """Tasks in layers, each reading one to three of the layer before; times and bytes are drawn, of one magnitude."""
    edges = []
    for layer in range(1, layers):
        for place in range(width):
            chosen = rng.choice(width, int(rng.integers(1, min(3, width) + 1)), replace=False)
            edges += [((layer - 1) * width + int(one), layer * width + place) for one in chosen]
    count = layers * width
    return Work.of_edges(rng.uniform(0.5, 1.5, count) * 1e-3, edges, rng.uniform(0.1, 1.0, count) * 1e6)


def placement_problems() -> Iterator[tuple[str, PlacementTask]]:
    """Small tasks of different kinds, by name."""
    rng = np.random.default_rng(7)
    yield "layers", PlacementTask(layered_work(rng, 6, 4), Devices.alike(3))
    yield "one task", PlacementTask(Work.of_edges([1e-3], [], [8.0]), Devices.alike(2))
    yield "one device", PlacementTask(layered_work(rng, 3, 2), Devices.alike(1))
    uneven = Devices.alike(2)
    uneven.speed[:] = (1.0, 4.0)
    yield "uneven", PlacementTask(layered_work(rng, 4, 3), uneven)
    tight = Work(
        np.full(6, 1e-3),
        np.arange(6),
        np.full(6, 1e3),
        [[1], [2], [3], [4], [5], []],
        np.array([False] * 5 + [True]),
        [[number] for number in range(6)],
        np.full(6, 1e6),
    )
    yield "weights of three devices", PlacementTask(tight, Devices.alike(3, memory=2.1e6))


def check_placer(make: Callable[[], Placer], *, evaluations: int | None = None) -> None:
    """Try a placer on :func:`placement_problems`; an AssertionError says what it does not keep to.

    A decision is one integer a node, each a device that there is; the same seed gives the same decisions; no placement
    is quicker than the lower bound; where a placement within the memory was found by filling the devices in turn, the
    placer's is valid, too; at most ``evaluations`` are spent.
    """
    for name, task in placement_problems():
        before = task.spent
        first = make().decide(task, np.random.default_rng(3))
        spent = task.spent - before
        assert isinstance(first, np.ndarray), f"{name}: a decision is an array"
        assert first.shape == (task.nodes,), f"{name}: the decision has the shape {first.shape}"
        assert first.dtype.kind in "iu", f"{name}: the decisions are {first.dtype}"
        assert first.min(initial=0) >= 0, f"{name}: a device below 0"
        assert first.max(initial=0) < task.choices, f"{name}: a device that is not there"
        again = make().decide(task, np.random.default_rng(3))
        assert np.array_equal(first, again), f"{name}: the same seed gave other decisions"
        value = task.evaluate(first)
        assert value.objective >= lower_bound(task) * (1 - 1e-9), f"{name}: quicker than can be"
        assert evaluations is None or spent <= evaluations, f"{name}: {spent} evaluations of {evaluations}"
        if getattr(make(), "keeps_limits", True):
            assert value.valid, f"{name}: a memory limit is broken"
