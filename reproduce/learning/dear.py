"""Where the real step is dear: how many whole graphs must be timed until 90 % of the best known gain is found?

    python reproduce/learning/dear.py record [--families NAME ...] [--seconds 200]    times graphs, adds to the table
    python reproduce/learning/dear.py replay                                          the same from the table alone
    python reproduce/learning/dear.py confirm [--families NAME ...]                   times the best ones again
    python reproduce/learning/dear.py tables

Every search is given 60 timings of whole graphs, end to end in ONNX Runtime on one thread, beside the original of the
family; those that hope for five times fewer are given 12. ``record`` runs the searches, and times what the table lacks;
it ends after ``--seconds`` with what it has and goes on the next time. ``replay`` needs no clock: it runs them again on
what was recorded, and refuses where a search asks for something else. ``confirm`` is for afterwards: the best of many
noisy figures is too good, so the graphs that seemed the best of their family are timed again, and the verdict is by
these times; the searches never see them. beam, mcts and random walks time what they open.
``formula``: the way by the analytic cost is timed first, then backtracking goes on. ``surrogate`` begins with what
regions of the *other* families took (results/prices.jsonl), beside a belief that knows nothing (``one belief``: without
that); its untrained double with nothing.

Rows: a graph's time, results/times.jsonl; a search, results/dear.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [os.fspath(HERE), os.fspath(HERE.parent / "common")]

import recorded  # from this folder
import results  # from the folder "common"
import whole_times
from families import CONFIG, read
from run import RULES, WEIGHTS

from rlflow import search
from rlflow.files import write_atomically
from rlflow.graph import Graph
from rlflow.search import Problem, StopReason
from rlflow.search.backtracking import Backtracking
from rlflow.search.lead import follow_the_formula
from rlflow.search.strategy_base import StrategyBase

OUT = HERE / "results" / "dear.jsonl"
#: Timed graphs of a search, seeds of one that draws, the part of the best known gain that counts, and how many times
#: fewer graphs were asked for.
GRAPHS, SEEDS, PART, FEWER = 60, 3, 0.9, 5
#: Graphs that seem to gain so large a part of the best gain of their family are timed again, so many at most, so often.
NEARLY, LEADERS, CONFIRM = 0.8, 16, 5
#: A family in which nobody gains so many per cent says nothing.
WORTH = 2.0
#: Searches that need many timings, which the surrogate is measured against. The others are given so few that they
#: still need FEWER times fewer than a rival that needs all of its own.
RIVALS = ("beam", "mcts", "random")


@dataclass(frozen=True)
class Formula(StrategyBase):
    """What the analytic cost leads to is timed first; then backtracking, by the clock."""

    name: ClassVar[str] = "formula"

    def search(self, problem: Problem, rng: np.random.Generator) -> StopReason:
        follow_the_formula(problem)
        return Backtracking().search(problem, rng)


def entrants(family: str, block: int) -> dict[str, Any]:
    """Searches by name. The surrogate's file of timed regions has nothing of ``family``."""
    others = WEIGHTS / f"others-of-{family}.jsonl"
    rows = [row for row in recorded.table() if row["kind"] == "price" and row["family"] != family]
    others.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(others, "".join(json.dumps(row) + "\n" for row in rows).encode())
    return {
        "surrogate": f"surrogate:block={block},prices={others}",
        "surrogate one belief": f"surrogate:block={block},prices={others},beliefs=1",
        "surrogate untrained": f"surrogate:block={block},prices=none",
        "formula": Formula(),
        **{name: name for name in RIVALS},
    }


def limit(name: str) -> int:
    """Graphs that a search may time."""
    return GRAPHS if name in RIVALS else GRAPHS // FEWER


def searched(family: str, spec: Any, graphs: int, seed: int, rows: list[Any], clock: Any) -> tuple[Any, Any]:
    """The gains of the graphs that a search timed, in order, and the times as it saw them. ``seconds`` are processor
    time of the search and of the timing.
    """
    model = whole_times.TimedWhole(rows, family, clock)
    graph = read(family)
    if clock is not None:
        clock.begin(graph)
    begun = time.process_time()
    problem = Problem(graph, RULES, model, f"{graphs + 1}meas", seed=seed)
    try:
        found = search.solve(problem, spec)
    except whole_times.OutOfTime:
        return None, model
    row = {"timed": [round(gain, 3) for gain in model.asked], "digests": list(model.graphs),
           "stop_reason": str(found.stop_reason), "seconds": round(time.process_time() - begun, 3)}  # fmt: skip
    return row, model


def play(options: argparse.Namespace) -> int:
    """All searches that the file lacks, or, by ``replay``, all of them."""
    table = recorded.table()
    blocks = {row["family"]: row["block"] for row in table if row["kind"] == "family"}
    command = ["python", "reproduce/learning/dear.py", options.what]
    kept = results.Results(OUT, command, resume=True, dirty=options.dirty)
    times = results.Results(whole_times.TABLE, command, resume=True, dirty=options.dirty)
    clock = whole_times.Clock(options.seconds) if options.what == "record" else None
    for seed in range(options.seeds):
        for family in options.families:
            for name, spec in entrants(family, blocks[family]).items():
                key = f"{family}/{name}/{seed}"
                drawn = getattr(search.make(spec), "randomised", False)
                if (seed and not drawn) or (name not in options.entrants) or (clock is not None and kept.have(key)):
                    continue
                row, seen = searched(family, spec, limit(name), seed, times.rows, clock)
                if seen.fresh:
                    times.extend(seen.fresh)
                if row is None:
                    print(f"{family}/{name}: {options.seconds:g} s are over; call this again.", file=sys.stderr)
                    return 0
                kept.drop(lambda old, key=key: old.get("key") == key)
                kept.add({"kind": "search", "key": key, "family": family, "name": name, "seed": seed, **row})
    return 0


def last_word(row: dict[str, Any]) -> float | None:
    """The logarithm of the original's time over a graph's: as it was confirmed, if it was."""
    found: float | None = row.get("confirmed", row["log_ratio"])
    return found


def leaders(rows: Sequence[dict[str, Any]], family: str) -> list[dict[str, Any]]:
    """Rows of the graphs that seem the best of a family."""
    mine = [(last_word(row) or -math.inf, i, row) for i, row in enumerate(rows) if row.get("family") == family]
    mine.sort(reverse=True)
    return [row for ratio, _, row in mine[:LEADERS] if ratio >= NEARLY * mine[0][0] > 0]


def confirm(options: argparse.Namespace) -> int:
    """Times of the leading graphs, once more, until all that lead are confirmed. Their searches run again to make the
    graphs.
    """
    command = ["python", "reproduce/learning/dear.py", "confirm"]
    times = results.Results(whole_times.TABLE, command, resume=True, dirty=options.dirty)
    blocks = {row["family"]: row["block"] for row in recorded.table() if row["kind"] == "family"}
    done = [row for row in results.read(OUT)[0] if row["kind"] == "search"]
    for family in options.families:
        graphs: dict[str, Graph] = {}
        specs = entrants(family, blocks[family])
        mine = [row for row in done if row["family"] == family and row["name"] in specs]
        with whole_times.Clock(math.inf) as clock:
            clock.begin(read(family))
            while waiting := [row for row in leaders(times.rows, family) if "confirmed" not in row]:
                for row in waiting:
                    for one in mine if row["digest"] not in graphs else ():
                        if row["digest"] in one["digests"] and row["digest"] not in graphs:
                            spec, few = specs[one["name"]], limit(one["name"])
                            graphs |= searched(family, spec, few, one["seed"], times.rows, None)[1].graphs
                    if row["digest"] not in graphs:
                        raise SystemExit(f"No search of {family} timed {row['digest']}; `record` makes the table anew.")
                    row["confirmed"] = statistics.median(clock.ratios(graphs[row["digest"]], CONFIRM, 100))
                    gains = [whole_times.gain_of(row[name]) for name in ("log_ratio", "confirmed")]
                    print(f"{family}: {gains[0]:.2f} %, again {gains[1]:.2f} %", file=sys.stderr, flush=True)
        times.write()
    return 0


def known_gains(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], float]:
    """Gains in per cent by family and digest, by the last word on each graph."""
    return {
        (row["family"], row["digest"]): whole_times.gain_of(last_word(row)) for row in rows if row["kind"] == "time"
    }


def needed(gains: Sequence[float], best: float) -> float:
    """Timed graphs until PART of ``best``; infinite where that is not reached."""
    return next((1.0 + i for i, gain in enumerate(gains) if gain >= PART * best), math.inf)


def ahead(mine: float, other: float) -> bool:
    """Whether FEWER times fewer were needed; who never got there needed one more than it was given."""
    return FEWER * mine <= min(other, GRAPHS + 1)


def lines(rows: Sequence[dict[str, Any]], known: Mapping[tuple[str, str], float]) -> Iterator[str]:
    """The table, a line at a time: timed graphs until PART of the best known gain, median over the seeds. ``known``: as
    of :func:`known_gains`.
    """
    by: dict[str, dict[str, list[list[float]]]] = {}
    for row in rows:
        gains = [known[row["family"], digest] for digest in row["digests"]]
        by.setdefault(row["family"], {}).setdefault(row["name"], []).append(gains)
    names = list(dict.fromkeys(row["name"] for row in rows))
    yield from results.heading("family", "best known gain, %", *names, "surrogate ahead of")
    won = []
    for family, mine in by.items():
        best = max(gain for (name, _), gain in known.items() if name == family)  # of other versions' graphs, too
        medians = {name: statistics.median(needed(gains, best) for gains in runs) for name, runs in mine.items()}
        own = medians.get("surrogate", math.inf)
        beaten = [name for name in RIVALS if name in medians and ahead(own, medians[name])]
        cells = [_cell(medians.get(name), name) for name in names]
        yield f"| `{family}` | {best:.1f} | {' | '.join(cells)} | {', '.join(beaten) if best >= WORTH else ''} |"
        won.append(best >= WORTH and len(beaten) == len(RIVALS))
    yield ""
    yield f"{FEWER} times fewer than each of {', '.join(RIVALS)}: on {sum(won)} of {len(by)} families."


def _cell(median: float | None, name: str) -> str:
    if median is None:
        return ""
    return f"more than {limit(name)}" if math.isinf(median) else f"{median:.3g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "replay", "confirm", "tables"))
    known = CONFIG["unseen"]
    names = ["surrogate", "surrogate one belief", "surrogate untrained", "formula", *RIVALS]
    parser.add_argument("--families", nargs="*", choices=known, metavar="NAME", default=known)
    parser.add_argument("--entrants", nargs="*", choices=names, metavar="NAME", default=names)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--seconds", type=float, default=200.0, help="that record may time for")
    results.add_options(parser)
    options = parser.parse_args()
    if options.what == "tables":
        rows, machines = results.read(OUT)
        times = known_gains(results.read(whole_times.TABLE)[0])
        print("\n".join([*results.about(rows, machines), *lines(rows, times)]))
        return 0
    return confirm(options) if options.what == "confirm" else play(options)


if __name__ == "__main__":
    sys.exit(main())
