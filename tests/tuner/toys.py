"""Small spaces and engines that tests tune."""

from __future__ import annotations

import functools
import math

import numpy as np

from rlflow.tuner.engines import TunedSubgraph
from rlflow.tuner.recorded import RecordedEngine
from rlflow.tuner.spaces import Sketch, Space, Steps, TensorProgram, Tile

GEMM = Sketch(
    "tiles",
    (Tile("i", 12, 3, innermost=6), Tile("j", 16, 3), Tile("k", 6, 2, reduction=True)),
    (Steps("unroll", "unroll", (0, 16, 64, 512)), Steps("at", "compute_at", (-1, 0, 1))),
)
FLAT = Sketch("flat", (Tile("i", 48, 2), Tile("k", 12, 2, reduction=True)), (Steps("jobs", "parallel", (1, 2, 4)),))
NOTHING_OPEN = Sketch("the runtime's own", ())
SPACE = Space((GEMM, FLAT))


def seconds_of(space: Space, program: TensorProgram) -> float:
    """A time with some structure: small inner tiles and large ones lose, unrolling helps in part; some splits cannot
    run.
    """
    sketch = space.sketches[program.sketch]
    row, total = program.values, 1.0 + 3.0 * program.sketch
    for tile, begin in zip(sketch.tiles, sketch.begins, strict=True):
        inner = math.log2(row[begin + tile.parts - 1])
        total += 0.35 * abs(inner - 2.0) + 0.1 * abs(math.log2(row[begin]) - 1.0)
    for at, one in enumerate(sketch.steps):
        total += 0.2 * abs(row[sketch.split_columns + at] - (len(one.values) - 1) / 2)
    return math.inf if sum(row) % 40 == 0 else 1e-4 * total**2


@functools.cache
def times_of(space: Space) -> np.ndarray:
    """Of all programs, in order."""
    return np.array([seconds_of(space, one) for one in space.programs()])


def engine(count: int = 1, space: Space = SPACE) -> RecordedEngine:
    """``count`` subgraphs of that space, each slower than the last."""
    times = times_of(space)
    subgraphs = [
        TunedSubgraph(f"toy {number}", space, 1e6, weight=1.0 + number, family="toy") for number in range(count)
    ]
    return RecordedEngine("a toy", subgraphs, [times * (1 + number) for number in range(count)], trial_seconds=0.5)
