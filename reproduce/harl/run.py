"""Methods of tuning against one another: the best program against trials and processor seconds.

    python reproduce/harl/run.py [--stage tables ablation network transfer live] [--methods harl ...] [--seeds 5]
                                 [--table winograd | generated] [--trials 24]

`tables`: on a recorded table, where the optimum is known and every machine gives the same: our own kernels' programs
(`winograd`), or those that TVM generates for three operators (`generated`, give it 80 trials). From scratch ("cold"),
and with a cost model that learnt from the table's other shapes of its kind ("warm"), never from the one that is tuned.
`ablation`: HARL without one of its parts. `network`: all shapes of a table as one network. `transfer`: an actor that
was trained on half of the shapes, on the others. `live`: on TVM, measured here; the method `metaschedule` is TVM's own
search, `metaschedule-64` with TVM's own batches. `judge`: the best programs of these runs (`--resume`), timed again in
turn.
A method's row says how near it came to the optimum within a tenth of the space's size (or how fast its best program
is), after how many trials it was within 3 % and 1 %, and what processor time that took: its own and, for tables, what
the trials took when the table was made.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import judging
import results
import summaries

from rlflow.search import Budget
from rlflow.tuner import METHODS, Engine, RecordedEngine, TransferPrior, Tuner, TunerConfig, WarmStart, method
from rlflow.tuner.program_scores import COST_MODELS
from rlflow.tuner.tracks import TrackConfig
from rlflow.tuner.tuning import TuningRound

TABLES = {
    "winograd": HERE.parents[1] / "rlflow" / "tuner" / "winograd.json",
    "generated": HERE / "generated.json.gz",
}
RESULTS = HERE / "results" / "curves.jsonl"
#: What is compared by default.
MAIN = ("harl", "evolutionary", "evolutionary-2048", "random")
#: TVM's own search, on its operators only, by the size of its batches.
METASCHEDULE = {"metaschedule": 16, "metaschedule-64": 64}
#: A program this near to the optimum counts as it, and a stricter bound.
NEAR, NEARER = 1.03, 1.01
#: Trials of a run on a table; HARL is judged by what it has after a tenth of the space.
TRIALS, TENTH = 24, 10
#: Trials on each of the shapes that an actor is trained on, and on a network of all shapes.
TRAINING, NETWORK = 48, 256


class Variant(NamedTuple):
    """A method, what is changed in it, whether it is warm, and whether the cost model sees the parameters alone."""

    config: TunerConfig
    warm: bool
    plain: bool = False


class PlainEngine(RecordedEngine):
    """A table whose cost models see the parameters alone."""

    def features(self, subgraph: int, programs: Any) -> np.ndarray:
        return self.subgraphs[subgraph].space.features(programs)


def variants() -> Mapping[str, Variant]:
    """HARL with a prior, and HARL without one of its parts."""
    harl = METHODS["harl"]
    return {
        "harl": Variant(harl, True),
        "without the prior": Variant(harl, False),
        "without prior and sizes' features": Variant(harl, False, plain=True),
        "sketches by chance": Variant(method("uniform-sketches"), True),
        "untrained actor": Variant(method("untrained"), True),
        "tracks of one length": Variant(METHODS["fixed-tracks"], True),
        "without optimism": Variant(method("harl", optimism=0.0), True),
        "cold, sketches by chance": Variant(method("uniform-sketches"), False),
        "cold, untrained actor": Variant(method("untrained"), False),
        "cold, tracks of one length": Variant(METHODS["fixed-tracks"], False),
    }


def one_run(tuner: Tuner, trials: int, optimum: float | None) -> dict[str, Any]:
    """A tuner's run on one subgraph: fields of a row. Without a known optimum the programs that it climbed by."""
    found = tuner.run(Budget(measurements=trials))
    best, last = found.rounds[-1].best, found.rounds[-1]
    curve = [[one.trials, round(one.best * 1e6, 3), round(one.cpu_seconds, 3)] for one in found.rounds]
    row: dict[str, Any] = {
        "trials": found.trials, "us": round(best * 1e6, 3), "cpu_seconds": round(last.cpu_seconds, 2), "curve": curve,
    }  # fmt: skip
    if optimum is None:
        row["climb"] = climb(found.rounds)
    else:
        took = [seconds / optimum for one in found.rounds for seconds in one.seconds]
        tenth = tuner.engine.subgraphs[0].space.size // TENTH
        row |= {
            "tenth": round(min(took[:tenth]), 4), "best": round(min(took), 4), "near_after": _first(took, NEAR),
            "nearer_after": _first(took, NEARER),
        }  # fmt: skip
    return row


def climb(rounds: Sequence[TuningRound]) -> list[list[Any]]:
    """[trials, processor seconds, program] of each round that found a better one, of one subgraph."""
    found, best = [], float("inf")
    for one in rounds:
        seconds, program = min(zip(one.seconds, one.programs, strict=True), key=lambda pair: pair[0])
        if seconds < best:
            best = seconds
            found.append([one.trials, round(one.cpu_seconds, 3), [*program]])
    return found


def _first(took: list[float], bound: float) -> int | None:
    return next((number for number, one in enumerate(took, 1) if one <= bound), None)


# --- tables -----------------------------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """A shape of a table: its place there, and what the table's other shapes say of it."""

    title: str
    table: RecordedEngine
    number: int

    def engine(self, plain: bool = False) -> RecordedEngine:
        """Of this shape alone."""
        only = self.table.only(self.number)
        if not plain:
            return only
        times = [np.array(list(one.values())) for one in only.seconds]
        return PlainEngine(only.place, only.subgraphs, times, only.trial_seconds)

    def starts(self) -> tuple[str, ...]:
        """How a tuning may begin: warm only where other shapes of the table have the same parameters."""
        subgraphs = list(self.table.subgraphs)
        mine = subgraphs.pop(self.number)
        alike = any((one.family, one.space) == (mine.family, mine.space) for one in subgraphs)
        return ("cold", "warm") if alike else ("cold",)

    def prior(self, from_shapes: list[int] | None = None) -> TransferPrior:
        """Learnt from other shapes, by default all of them."""
        others = [at for at in range(len(self.table.subgraphs)) if at != self.number]
        known = self.table.only(*(others if from_shapes is None else [at for at in from_shapes if at in others]))
        return TransferPrior.of(known, known.seconds)


def shapes(name: str) -> Iterator[Shape]:
    """Of a recorded table."""
    table = RecordedEngine.read(TABLES[name])
    for number, subgraph in enumerate(table.subgraphs):
        yield Shape(f"{name}: {subgraph.name}", table, number)


def on_tables(kept: results.Results, options: argparse.Namespace) -> None:
    for shape in shapes(options.table):
        for name in (one for one in options.methods if one not in METASCHEDULE):
            for start in ("cold",) if METHODS[name].proposer == "random" else shape.starts():
                warm = WarmStart(shape.prior() if start == "warm" else None)
                variant = Variant(METHODS[name], start == "warm")
                rows(kept, options, "run", shape, {"method": name, "start": start}, variant, warm)


def on_ablation(kept: results.Results, options: argparse.Namespace) -> None:
    for shape in shapes(options.table):
        for name, variant in variants().items():
            if not variant.warm or "warm" in shape.starts():
                start = WarmStart(shape.prior() if variant.warm else None)
                rows(kept, options, "ablation", shape, {"variant": name}, variant, start)


def rows(
    kept: results.Results, options: argparse.Namespace, kind: str, shape: Shape, what: dict[str, str],
    variant: Variant, start: WarmStart,
) -> None:  # fmt: skip
    """One for each seed."""
    for seed in range(options.seeds):
        key = " ".join([kind, shape.title, *what.values(), str(seed)])
        if kept.have(key):
            continue
        engine = shape.engine(variant.plain)
        tuner = Tuner(engine, variant.config, seed, start)
        found = one_run(tuner, options.trials, engine.optimum(0)[1])
        kept.add({"kind": kind, "key": key, "title": shape.title, **what, "seed": seed, **found})


def on_network(kept: results.Results, options: argparse.Namespace) -> None:
    """All shapes of a table together: how far their sum is from the sum of their optima."""
    for name, config in networks().items():
        for seed in range(options.seeds):
            key = f"network {options.table} {name} {seed}"
            if kept.have(key):
                continue
            table = RecordedEngine.read(TABLES[options.table])
            found = Tuner(table, config, seed).run(Budget(measurements=NETWORK))
            least = sum(table.optimum(at)[1] for at in range(len(table.subgraphs)))
            curve = [[one.trials, round(one.network / least, 4)] for one in found.rounds]
            last = {f"after_{count}": _at(curve, count) for count in (64, 128, NETWORK)}
            kept.add({"kind": "network", "key": key, "title": options.table, "method": name, "seed": seed, **last,
                      "cpu_seconds": round(found.rounds[-1].cpu_seconds, 2), "curve": curve})  # fmt: skip


def networks() -> Mapping[str, TunerConfig]:
    """What is compared on all shapes together: the first level's ways, and HARL whose shapes learn apart."""
    named = ("harl", "round-robin", "greedy-gradient", "evolutionary", "random")
    apart = {f"{name}, shapes apart": method(name, transfer=False) for name in ("harl", "evolutionary")}
    return {**{name: METHODS[name] for name in named}, **apart}


def _at(curve: list[list[float]], trials: int) -> float:
    return next(ratio for count, ratio in reversed(curve) if count <= trials)


# --- transfer ---------------------------------------------------------------------------------------------------------

ACTORS = ("from scratch", "untrained weights", "zero-shot", "fine-tuned")
#: How far tracks walk in a round: as usual, where they see most programs of a sketch, or sixteen steps in all, where it
#: matters more which way they go.
WALKS: Mapping[str, TrackConfig] = {"usual": TrackConfig(), "short": TrackConfig(tracks=4, window=4, keep=4)}


def on_transfer(kept: results.Results, options: argparse.Namespace) -> None:
    """Two folds: an actor that was trained on the even shapes works on the odd ones, and the other way round."""
    every = list(shapes(options.table))
    for fold, seed in itertools.product(range(2), range(options.seeds)):
        trained = [one.number for one in every if one.number % 2 == fold]
        others = (one for one in every if one.number % 2 != fold)
        for shape, walk, actor, start in itertools.product(others, WALKS, ACTORS, ("cold", "warm")):
            if start not in shape.starts():
                continue
            key = f"transfer {shape.title} {walk} {actor} {start} {seed}"
            if kept.have(key):
                continue
            prior = shape.prior(trained) if start == "warm" else None
            weights = trained_weights(options.table, fold, seed)
            row = transferred(shape, walk, actor, WarmStart(prior, weights), seed, options.trials)
            kept.add({"kind": "transfer", "key": key, "title": shape.title, "walk": walk, "actor": actor,
                      "start": start, "seed": seed, **row})  # fmt: skip


@functools.cache
def trained_weights(table_name: str, fold: int, seed: int) -> Mapping[str, np.ndarray]:
    """Of an actor that tuned the shapes of this fold together."""
    trained = [one for one in shapes(table_name) if one.number % 2 == fold]
    table = trained[0].table.only(*(one.number for one in trained))
    tuner = Tuner(table, method("round-robin"), seed)
    tuner.run(Budget(measurements=TRAINING * len(trained)))
    weights: Mapping[str, np.ndarray] = tuner.proposer.agent.weights()  # type: ignore[attr-defined]
    return weights


def transferred(shape: Shape, walk: str, actor: str, start: WarmStart, seed: int, trials: int) -> dict[str, Any]:
    """What an actor does on a shape that it never saw."""
    learns = actor in ("from scratch", "fine-tuned")
    tracks = WALKS[walk] if learns else dataclasses.replace(WALKS[walk], train_every=0)
    mine = start if actor in ("zero-shot", "fine-tuned") else start._replace(weights=None)
    engine = shape.engine()
    return one_run(Tuner(engine, method("harl", tracks=tracks), seed, mine), trials, engine.optimum(0)[1])


# --- TVM --------------------------------------------------------------------------------------------------------------

#: Operators of Ansor's suite, as TVM's MetaSchedule defines them (those of one input and one output that a processor
#: without a second device can build), in the order in which they are measured.
OPERATORS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "GMM 128x128x128": ("gemm", (128, 128, 128)),
    "GMM 512x32x512": ("gemm", (512, 32, 512)),
    "C2D 56x56x64 3x3": ("conv2d", (1, 56, 56, 64, 64, 3, 1, 1)),
    "C2D 14x14x256 3x3": ("conv2d", (1, 14, 14, 256, 256, 3, 1, 1)),
    "C2D 28x28x128 to 256, 1x1, stride 2": ("conv2d", (1, 28, 28, 128, 256, 1, 2, 0)),
    "DEP 56x56x96 3x3": ("depthwise", (1, 56, 56, 96, 3, 1, 1)),
    "GRP 28x28x128 in 32, 3x3": ("grouped", (1, 28, 28, 128, 128, 3, 1, 1, 1, 32)),
}


def on_live(kept: results.Results, options: argparse.Namespace) -> None:
    from rlflow.tuner import TvmEngine, TvmOperator

    for title in options.operators:
        kind, sizes = OPERATORS[title]
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for name in options.methods:
                key = f"live {title} {name} {seed}"
                if kept.have(key):
                    continue
                if name in METASCHEDULE:
                    found, flops = by_metaschedule(kind, sizes, seed, options.trials, METASCHEDULE[name])
                else:
                    engine: Engine = TvmEngine([TvmOperator(title, kind, sizes)])
                    tuner = Tuner(engine, method(name, cost=options.cost), seed)
                    found = one_run(tuner, options.trials, None)
                    flops = engine.subgraphs[0].flops
                    engine.close()
                kept.add({"kind": "live", "key": key, "title": title, "method": name, "seed": seed, **found,
                          "gflops": round(flops / found["us"] * 1e-3, 2)})  # fmt: skip


def on_judge(kept: results.Results, options: argparse.Namespace) -> None:
    """Times what the live runs found, all of an operator in turn."""
    for title in options.operators:
        runs = [row for row in kept.of("live") if row["title"] == title and row["method"] in options.methods]
        left = [row for row in runs if not kept.have(f"judged {row['key']}")]
        if not left:
            continue
        for row, found in zip(runs, judging.judged(*OPERATORS[title], runs), strict=True):
            what = {one: row[one] for one in ("title", "method", "seed", "trials")}
            key = f"judged {row['key']}"
            if not found and kept.have(key):
                continue  # its programs are in the raw file, which is not here
            kept.drop(lambda old, key=key: old.get("key") == key)
            kept.add({"kind": "judged", "key": key, **what, **found})


def by_metaschedule(
    kind: str, sizes: tuple[int, ...], seed: int, trials: int, batch: int
) -> tuple[dict[str, Any], float]:
    """Fields of a row, and operations."""
    command = [sys.executable, os.fspath(HERE / "metaschedule.py"), kind, *map(str, sizes)]
    command += ["--trials", str(trials), "--seed", str(seed), "--batch", str(batch)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(ended.stdout.splitlines()[-1])
    done, best, spent = found["curve"][-1]
    row = {"trials": done, "us": best, "cpu_seconds": round(spent, 2), "curve": found["curve"], "trace": found["trace"]}
    return row, found["flops"]


STAGES = {
    "tables": on_tables, "ablation": on_ablation, "network": on_network, "transfer": on_transfer, "live": on_live,
    "judge": on_judge,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", nargs="*", choices=list(STAGES), default=("tables",))
    parser.add_argument("--methods", nargs="*", choices=[*METHODS, *METASCHEDULE], default=MAIN, metavar="NAME")
    parser.add_argument("--operators", nargs="*", choices=list(OPERATORS), default=list(OPERATORS), metavar="NAME")
    parser.add_argument("--table", choices=list(TABLES), default="winograd")
    parser.add_argument("--cost", choices=list(COST_MODELS), default="both", help="the cost model of live runs")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0, help="of live runs")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--resume", action="store_true", help="keep the rows that are there")
    parser.add_argument("--output", type=Path, default=RESULTS)
    results.add_options(parser)
    options = parser.parse_args()
    command = ["python", "reproduce/harl/run.py", *sys.argv[1:]]
    measures = not {"live", "judge"}.isdisjoint(options.stage)  # there the seconds of curves are asked for
    bulky = ("trace", "climb") if measures else ("curve",)
    kept = results.Results(options.output, command, resume=options.resume, dirty=options.dirty, bulky=bulky)
    for stage in options.stage:
        STAGES[stage](kept, options)
    print(kept.about())
    print("\n".join(summaries.lines(kept.rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
