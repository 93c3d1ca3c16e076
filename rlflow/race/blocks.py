"""What a block of interleaved timings says: ratios within it, times over several, durations that are none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rlflow.errors import RuntimeRefused
from rlflow.price.timing import log_ratios, median_interval
from rlflow.race.decision import ModelTiming
from rlflow.runtime import Samples

#: A block by model name: one column each.
Block = Mapping[str, Samples]


class BadDuration(RuntimeRefused):
    """A model was timed at no time, or at one that is not a number."""

    def __init__(self, model: str, value: float) -> None:
        super().__init__(f"The clock answered {value:g} milliseconds for it, which is no duration.")
        self.model = model


def check_durations(samples: Samples, names: Sequence[str]) -> None:
    """Raises :class:`BadDuration` for the first model that has one."""
    for index, name in enumerate(names):
        for matrix in (samples.wall_ms, samples.cpu_ms):
            column = matrix[:, index]
            bad = column[~(np.isfinite(column) & (column > 0))]
            if bad.size:
                raise BadDuration(name, float(bad[0]))


def by_name(samples: Samples, names: Sequence[str]) -> dict[str, Samples]:
    """The columns of a block under their models' names."""
    return {
        name: Samples(samples.wall_ms[:, index], samples.cpu_ms[:, index], (samples.inner[index],))
        for index, name in enumerate(names)
    }


def ratio(block: Block, baseline: str, name: str, clock: str) -> float:
    """Median of the paired log ratios within a block; above 0 is faster than the baseline."""
    return float(np.median(log_ratios(block[baseline].by(clock), block[name].by(clock))))


def pooled(blocks: Sequence[Block], baseline: str, name: str, clock: str) -> float:
    """Median over blocks of :func:`ratio`."""
    return float(np.median([ratio(block, baseline, name, clock) for block in blocks]))


def timing(parts: Sequence[Samples], clock: str) -> ModelTiming:
    """A model's latency over several blocks."""
    own = np.concatenate([part.by(clock) for part in parts])
    wall = np.concatenate([part.wall_ms for part in parts])
    values = median_interval(own)
    p99, wall_p99 = (float(np.percentile(one, 99)) for one in (own, wall))
    return ModelTiming(values.value, values.low, values.high, float(np.median(wall)), int(wall.size), p99, wall_p99)


def timings(blocks: Sequence[Block], baseline: str, clock: str) -> dict[str, ModelTiming]:
    """The latency of every model that was timed in some block. The machine is faster in one block than in another, so
    what was not timed in all of them is told by its ratio to the ``baseline`` where both were.
    """
    found = {}
    for name in sorted({name for block in blocks for name in block}):
        mine = [block for block in blocks if name in block]
        found[name] = timing([block[name] for block in mine], clock)
        if len(mine) < len(blocks):
            whole = timing([block[baseline] for block in blocks], clock)
            found[name] = found[name].at_pace(whole.ms * math.exp(-pooled(mine, baseline, name, clock)))
    return found


def drift(blocks: Sequence[Samples], clock: str) -> float | None:
    """Median of the last third of the blocks over that of the first third."""
    third = len(blocks) // 3
    if third == 0:
        return None
    first, last = (np.median(np.concatenate([b.by(clock) for b in part])) for part in (blocks[:third], blocks[-third:]))
    return float(last / first)
