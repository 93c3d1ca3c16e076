"""Is a candidate at most so many times as slow as the baseline? The gate's blocks and test, with the bound as the goal.

The gate asks whether a candidate is faster than the baseline; here it need only be faster than ``slower`` times the
baseline's time. The ratios of the blocks are moved by that factor, and all else is :mod:`rlflow.race.sequential`'s.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rlflow.price.sampler import LazySource, WorkerSampler
from rlflow.price.timing import speedup
from rlflow.race.sequential import LEAST_BLOCKS, corrected_p, is_hopeless
from rlflow.race.track import Track
from rlflow.runtime import ModelSource, Worker

__all__ = ["Slowdown", "pace_of", "within"]

#: Level of the claim that the bound holds.
ALPHA = 0.01
#: Where the bound seems to hold and is not certain, blocks are added up to so many times the seconds.
LONGER = 3.0


class Slowdown(NamedTuple):
    """The candidate's time over the baseline's, with its 95 % interval. ``within``: whether it is certain that the
    bound holds; ``decided``: whether more blocks could not change that.
    """

    ratio: float
    low: float
    high: float
    blocks: int
    within: bool
    decided: bool


def pace_of(
    worker: Worker, baseline: ModelSource, candidates: Mapping[str, LazySource], feeds: Mapping[str, Any],
    seconds: float = 1.0, seed: int = 0,
) -> dict[str, float]:  # fmt: skip
    """Each candidate's time over the baseline's, of one block of about so many ``seconds``; those that the runtime
    refuses are left out.
    """
    with WorkerSampler(worker, {"baseline": baseline, **candidates}, feeds) as sampler:
        dropped = sampler.screen("baseline", None, seed)
        names = [name for name in candidates if name not in dropped]
        track = _track(sampler, names, seed, lambda: False)
        block = track.block(["baseline", *names], seconds)
        return {name: math.exp(-track.ratio(block, name)) for name in names if name in block}


def within(
    worker: Worker,
    baseline: ModelSource,
    candidate: LazySource,
    feeds: Mapping[str, Any],
    slower: float,
    *,
    seconds: float = 20.0,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Slowdown | None:
    """Blocks until it is certain that the bound holds or does not, or the time is spent; ``None`` where the runtime
    refuses the candidate. Raises :class:`CostError` where the baseline cannot be timed.
    """
    with WorkerSampler(worker, {"baseline": baseline, "candidate": candidate}, feeds) as sampler:
        if "candidate" in sampler.screen("baseline", None, seed):
            return None
        track = _track(sampler, ["candidate"], seed, stop)
        values: list[float] = []
        while not _is_over(values, slower, track, seconds):
            block = track.block(["baseline", "candidate"], seconds / (2 * LEAST_BLOCKS))
            if "candidate" in track.dropped:
                return None
            values.append(track.ratio(block, "candidate"))
    return _found(values, slower)


def _track(sampler: WorkerSampler, candidates: Sequence[str], seed: int, stop: Callable[[], bool]) -> Track:
    return Track(sampler, "baseline", list(candidates), [], {}, None, seed, stop, time.perf_counter())


def _moved(values: Sequence[float], slower: float) -> list[float]:
    return [value + math.log(slower) for value in values]


def _is_over(values: Sequence[float], slower: float, track: Track, seconds: float) -> bool:
    moved = _moved(values, slower)
    if values and (corrected_p(moved) <= ALPHA or is_hopeless(moved) or track.stop()):
        return True
    likely = bool(moved) and sorted(moved)[len(moved) // 2] > 0.0
    return len(values) >= LEAST_BLOCKS and track.elapsed() > (LONGER * seconds if likely else seconds)


def _found(values: Sequence[float], slower: float) -> Slowdown:
    moved, faster = _moved(values, slower), speedup(values)
    holds = corrected_p(moved) <= ALPHA
    low, high = (1.0 / end if end > 0.0 else math.inf for end in (faster.high, faster.low))
    return Slowdown(1.0 / faster.value, low, high, len(values), holds, holds or is_hopeless(moved))
