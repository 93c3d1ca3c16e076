"""Records a table of programs that TVM's MetaSchedule generates: an environment without a clock, in which the tile
sizes of an operator matter as much as they do there.

    python reproduce/harl/record_generated.py [--operators matrix-vector ...] [--output FILE]

TVM's own spaces have 10⁴ to 10⁹ programs, so each is cut down to one that can be measured whole: a loop keeps two or
three of its four parts, the others are 1; of the places where padding is computed two are left, of unrolling one.
All edits lead from one program of it to another. A time is the least of several calls, of one thread. The fastest
programs are built and timed again, and keep the least time of all, so that the optimum is not one that was lucky once.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlflow.files import write_atomically
from rlflow.tuner import INVALID, Sketch, Space, Steps, TensorProgram, Tile, TunedSubgraph, TvmEngine, TvmOperator
from rlflow.tuner.space_files import plain

OUTPUT = Path(__file__).resolve().parent / "generated.json.gz"
#: Programs in a request to the engine; the part of the programs that is timed again, and how often.
BATCH, AGAIN_PART, AGAIN = 16, 0.05, 2


class Loop(NamedTuple):
    """``parts``: places of a full tiling that stay open; what is left out is 1. ``innermost``: the most that the last
    open part may be, 0: any.
    """

    parts: tuple[int, ...]
    innermost: int = 0


class Cut(NamedTuple):
    """``loops``, in TVM's order; ``steps``: positions of the values that stay, by the sub-action that changes them."""

    operator: TvmOperator
    loops: tuple[Loop, ...]
    steps: Mapping[str, tuple[int, ...]]


ONE, WHOLE = Loop((0,)), Loop((1,))
#: Padding is computed where it is read, or once for each third loop.
AT = (0, 4)
OPERATORS: Mapping[str, Cut] = {
    "matrix-vector": Cut(
        TvmOperator("matrix-vector 1x768x2048", "gemm", (1, 2048, 768)),
        (ONE, Loop((0, 2, 3), 64), Loop((0, 1), 4)),
        {"unroll": (1,)},
    ),
    "grouped": Cut(
        TvmOperator("grouped 3x3, 56x56 pixels, 128 channels in 32", "grouped", (1, 56, 56, 128, 128, 3, 1, 1, 1, 32)),
        (ONE, Loop((0, 2), 2), Loop((0, 2), 8), Loop((0, 3), 32), WHOLE, WHOLE, WHOLE),
        {"unroll": (1,), "compute_at": AT},
    ),
    "depthwise": Cut(
        TvmOperator("depthwise 5x5, 14x14 pixels, 352 channels", "depthwise", (1, 14, 14, 352, 5, 1, 2)),
        (ONE, Loop((0, 2), 2), Loop((0, 2)), Loop((0, 3), 64), WHOLE, WHOLE),
        {"unroll": (1,), "compute_at": AT},
    ),
}


def cut_sketch(full: Sketch, cut: Cut) -> Sketch:
    """What stays open of a sketch."""
    tiles = tuple(
        Tile(tile.name, tile.extent, len(loop.parts), loop.innermost, tile.reduction)
        for tile, loop in zip(full.tiles, cut.loops, strict=True)
        if len(loop.parts) > 1
    )
    steps = tuple(
        Steps(one.name, one.group, tuple(one.values[at] for at in cut.steps[one.group]))
        for one in full.steps
        if len(cut.steps[one.group]) > 1
    )
    return Sketch(full.name, tiles, steps)


def full_row(full: Sketch, cut: Cut, values: Sequence[int]) -> tuple[int, ...]:
    """The row of the full sketch that a row of the cut one stands for."""
    left, row = list(values), list[int]()
    for tile, loop in zip(full.tiles, cut.loops, strict=True):
        parts = [1] * tile.parts
        for place in loop.parts:
            parts[place] = left.pop(0) if len(loop.parts) > 1 else tile.extent
        row += parts
    for one in full.steps:
        kept = cut.steps[one.group]
        row.append(kept[left.pop(0)] if len(kept) > 1 else kept[0])
    return tuple(row)


def recorded(name: str) -> tuple[dict, str, float, int]:
    """A table, the place, processor seconds of all trials, and how many there were."""
    cut = OPERATORS[name]
    engine = TvmEngine([cut.operator])
    try:
        (full,) = engine.subgraphs
        space = Space(tuple(cut_sketch(one, cut) for one in full.space.sketches))
        programs = list(space.programs())
        rows = [
            TensorProgram(one.sketch, full_row(full.space.sketches[one.sketch], cut, one.values)) for one in programs
        ]
        assert all(full.space.holds(one) for one in rows)
        spent = engine.cpu_seconds
        seconds = np.array(measured(engine, rows, name))
        best = np.argsort(seconds)[: int(AGAIN_PART * len(rows))]
        for _ in range(AGAIN):
            seconds[best] = np.minimum(seconds[best], engine.measure(0, [rows[at] for at in best.tolist()]))
        spent, trials = engine.cpu_seconds - spent, len(rows) + AGAIN * len(best)
    finally:
        engine.close()
    subgraph: TunedSubgraph = replace(full, space=space)
    times = [None if one == INVALID else round(one * 1e9) for one in seconds.tolist()]
    return {"subgraph": plain(subgraph), "nanoseconds": times}, engine.place, spent, trials


def measured(engine: TvmEngine, rows: Sequence[TensorProgram], name: str) -> list[float]:
    """Seconds of all programs; they are built in an order of chance, so that a neighbour's work hits no region."""
    order = np.random.default_rng(0).permutation(len(rows)).tolist()
    found = [INVALID] * len(rows)
    for begin in range(0, len(order), BATCH):
        some = order[begin : begin + BATCH]
        for at, took in zip(some, engine.measure(0, [rows[one] for one in some]), strict=True):
            found[at] = took
        if begin // BATCH % 10 == 0:
            print(f"{name}: {begin} of {len(rows)}, {min(found) * 1e6:.1f} us", file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", nargs="*", choices=list(OPERATORS), default=list(OPERATORS), metavar="NAME")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    tables, seconds, trials = [], 0.0, 0
    for name in options.operators:
        table, place, spent, count = recorded(name)
        tables.append(table)
        seconds, trials = seconds + spent, trials + count
        content = {"form": "rlflow tuner table 2", "place": place, "trial_seconds": round(seconds / trials, 6),
                   "tables": tables}  # fmt: skip
        text = json.dumps(content) + "\n"
        write_atomically(options.output, gzip.compress(text.encode(), 9, mtime=0))
        print(f"{name}: {count} trials, {spent:.0f} processor seconds", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
