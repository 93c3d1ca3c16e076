"""Blocks are timed of who is still in, as long as the time reaches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rlflow.errors import CostError, RuntimeCrashed, RuntimeRefused
from rlflow.race.track import Track
from rlflow.runtime import Samples


class Machine:
    """Models by name and milliseconds; one whose time is ``None`` crashes, one below zero is a clock's nonsense."""

    clock = "wall"

    def __init__(self, **ms: float | None) -> None:
        self.ms, self.asked, self.seeds = ms, list[list[str]](), list[int]()

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
        self.asked.append(list(names))
        self.seeds.append(seed)
        if any(self.ms[name] is None for name in names):
            raise RuntimeCrashed("SIGSEGV")
        matrix = np.array([[self.ms[name] for name in names]] * 3, dtype=float)
        return Samples(matrix, matrix, (1,) * len(names))


def track(machine: Machine, at_most: float | None = None, started: float = 0.0) -> Track:
    return Track(machine, "base", ["a", "b"], ["c"], {}, at_most, 7, lambda: False, started)


@pytest.mark.parametrize("bad", ["a", "b", "c"])
@pytest.mark.parametrize("ms", [None, -1.0, float("nan")])
def test_who_brings_the_runtime_down_is_out(bad: str, ms: float | None) -> None:
    one = track(Machine(**{"base": 2.0, "a": 1.0, "b": 1.0, "c": 1.0, bad: ms}))
    block = one.block(one.alive, 0.0)
    assert set(block) == set(one.alive) == {"base", "a", "b", "c"} - {bad}
    assert list(one.dropped) == [bad]
    assert one.ratio(block, next(iter({"a", "b"} - {bad}))) == pytest.approx(np.log(2.0))


@pytest.mark.parametrize("ms", [None, 0.0])
def test_a_baseline_that_fails_ends_it(ms: float | None) -> None:
    with pytest.raises(CostError, match="The baseline could not be timed"):
        track(Machine(base=ms, a=1.0, b=1.0, c=1.0)).block(["base", "a"], 0.0)


def test_where_nobody_fails_alone_the_last_one_is_out() -> None:
    class Together(Machine):
        def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
            if len(names) > 2:
                raise RuntimeRefused("out of memory")
            return super().block(names, seed, seconds)

    one = track(Together(base=1.0, a=1.0, b=1.0, c=1.0))
    assert set(one.block(one.alive, 0.0)) == {"base", "a"}
    assert list(one.dropped) == ["c", "b"]


def test_blocks_are_as_dear_as_the_dearest(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 3.0, 3.0, 4.0])  # two blocks, of three seconds and of one
    monkeypatch.setattr("rlflow.race.track.time.perf_counter", lambda: next(now))
    one = track(Machine(base=1.0, a=1.0, b=1.0, c=1.0), at_most=10.0)
    for _ in range(2):
        one.block(["base"], 0.0)
    assert one.dearest == 3.0
    monkeypatch.setattr("rlflow.race.track.time.perf_counter", lambda: 4.0)
    assert [one.lacks(blocks) for blocks in (1, 2, 3)] == [False, False, True]
    one.at_most = None
    assert not one.lacks(1000)


def test_every_block_has_orders_of_its_own_and_a_check_has_others() -> None:
    seeds = []
    for than in (None, None, "2026-11-22T10:00:00", "2026-11-23T10:00:00"):
        machine = Machine(base=1.0, a=1.0, b=1.0, c=1.0)
        one = track(machine)
        if than is not None:
            one.other_orders(than)
        for _ in range(3):
            one.block(["base", "a"], 0.0)
        seeds.append(tuple(machine.seeds))
    assert seeds[0] == seeds[1]
    assert len({seed for row in seeds[1:] for seed in row}) == 9
