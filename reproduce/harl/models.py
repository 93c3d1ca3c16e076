"""Whole models, tuned: `rlflow tune` on what `rlflow optimize --kernels` made of them, against that.

    python reproduce/harl/models.py [--models mobilenet-v2 FILE.onnx ...] [--budget 75s] [--resume]
    python reproduce/harl/models.py --interrupt 48 --models mobilenet-v2 [--resume]

Each model is optimised, and its graph tuned. Then three forms of that graph race in the same run: in ONNX Runtime
alone ("stock"), with the kernels that the optimizer chose, which have their usual parameters ("untuned"), and as it was
tuned. A row has the ratio of untuned and tuned with its 95 % interval, ratios to stock, and the processor seconds of
the tuning with its own check and race.
With ``--interrupt`` no time is claimed: a tuning of so many programs is ended by SIGINT halfway and run again, twice. A
row says whether what was kept before the end is there unchanged, whether the programs are those of a tuning that was
left alone, and whether one more run leaves the database as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import results
import sweep

from rlflow import zoo
from rlflow.equivalence import make_inputs
from rlflow.frontends import blocked
from rlflow.kernels import KEY, KernelPlan, library_path, preparing
from rlflow.optimizer import optimize
from rlflow.race import gate
from rlflow.runtime import RuntimeOptions, Worker, interface

MODELS = ("mobilenet-v2", "resnext-50", "nasnet-a", "bert-base", "llama-decoder-step")
RESULTS = HERE / "results" / "models.jsonl"
#: Seconds between two looks at a database that fills.
_LOOK = 0.2
Trials = dict[tuple[str, ...], tuple[Any, ...]]


def optimised(name: str, folder: Path, budget: str) -> Path:
    """The file that `rlflow optimize --kernels` writes of a zoo model, or of a model's file."""
    source, made = Path(name), folder / "optimised.onnx"
    if not source.is_file():
        source = folder / "model.onnx"
        source.write_bytes(zoo.build(name).SerializeToString())
    optimize(os.fspath(source), output=made, kernels=True, budget=budget, threads=1, quiet=True)
    return made


def tune_command(model: Path, folder: Path, budget: str, options: argparse.Namespace) -> list[str]:
    how = ["--budget", budget, "--method", options.method, "--threads", "1", "--seed", str(options.seed), "-q"]
    return [*sweep.CLI, "tune", os.fspath(model), "-o", os.fspath(folder), *how]


def row_of(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One model: what its tuning took and chose, and the race of the three forms."""
    with scratch() as folder:
        made, tuned = optimised(name, folder, options.optimize), folder / "tuned"
        before = children_seconds()
        status = sweep.run(tune_command(made, tuned, options.budget, options), check=False)
        spent = children_seconds() - before
        row = {
            "kind": "model", "key": key_of(name), "method": options.method, "budget": options.budget,
            "optimize": options.optimize, "seed": options.seed, "exit_status": status, "cpu_seconds": round(spent, 1),
        }  # fmt: skip
        if status != 0:
            return row
        found = json.loads((tuned / "report.json").read_text(encoding="utf-8"))
        plans = {"untuned": plan_of(made), "tuned": plan_of(tuned / "model.onnx")}
        own, best = (sum(one[which] for one in found["nodes"]) for which in ("own_us", "best_us"))
        return {
            **row, **{one: found[one] for one in ("trials", "stop", "note")},
            "nodes": sum(len(one["nodes"]) for one in found["nodes"]), "nodes_ratio": round(own / best, 3),
            **{f"{form}_kernels": kernels_of(plan) for form, plan in plans.items()},
            "other_parameters": sum(bool(one.tuning) for one in plans["tuned"].choices) if plans["tuned"] else 0,
            **raced(made, plans, options.race),
        }  # fmt: skip


def raced(path: Path, plans: dict[str, KernelPlan | None], seconds: float) -> dict[str, Any]:
    """Ratios of the three forms of a graph."""
    source = blocked.whole(os.fspath(path))
    forms = {form: source if plan is None else applied(source, plan) for form, plan in plans.items()}
    with Worker(RuntimeOptions(threads=1, library=library_path())) as worker:
        feeds = make_inputs(worker.interface(source).inputs, 0, {}, None, {})
        candidate, beside = {"tuned": forms["tuned"]}, {"stock": source}
        found = gate.choose(worker, forms["untuned"], candidate, feeds, only=True, beside=beside, **time_of(seconds))
    ms = {name: timing.ms for name, timing in found.timings.items()}
    return {
        "tuned_over_untuned": round(found.speedup or ms["baseline"] / ms["tuned"], 4), "ci95": found.speedup_ci95,
        "untuned_over_stock": round(ms["stock"] / ms["baseline"], 4),
        "tuned_over_stock": round(ms["stock"] / ms["tuned"], 4), "stock_ms": round(ms["stock"], 3),
        "same_plan": choices_of(plans["tuned"]) == choices_of(plans["untuned"]), "blocks": found.blocks,
        "clock": found.clock,
    }  # fmt: skip


def time_of(seconds: float) -> dict[str, float]:
    return {"seconds": seconds, "at_most": 1.5 * seconds}


def applied(source: bytes, plan: KernelPlan) -> bytes:
    made, note = preparing.applied(source, plan)
    assert made is not None, note  # the plan was made here
    return made


def plan_of(path: Path) -> KernelPlan | None:
    text = interface.metadata_entry(os.fspath(path), KEY)
    return None if text is None else KernelPlan.parse(text)


def choices_of(plan: KernelPlan | None) -> dict[str, tuple[str, dict[str, int]]]:
    return {} if plan is None else {one.node: (one.algorithm, dict(one.tuning)) for one in plan.choices}


def kernels_of(plan: KernelPlan | None) -> dict[str, int]:
    return dict(Counter(algorithm for algorithm, _ in choices_of(plan).values()))


# --- interrupted ------------------------------------------------------------------------------------------------------


def interrupted_row(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """A tuning that was left alone beside one that was interrupted, run again, and run once more."""
    with scratch() as folder:
        model, budget = optimised(name, folder, options.optimize), f"{options.interrupt}meas"
        whole, parts = folder / "whole", folder / "parts"
        command = tune_command(model, parts, budget, options)
        statuses = [sweep.run(tune_command(model, whole, budget, options), check=False)]
        alone = trials_of(whole)
        statuses.append(interrupted(command, parts, len(alone) // 2))
        states = [trials_of(parts)]
        for _ in range(2):
            statuses.append(sweep.run(command, check=False))
            states.append(trials_of(parts))
    first, second, third = states
    return {
        "kind": "interrupt", "key": f"{key_of(name)} interrupted {options.method}", "method": options.method,
        "budget": budget, "seed": options.seed, "exit_statuses": statuses, "alone": len(alone),
        "when_interrupted": len(first), "after": len(second), "kept_unchanged": first.items() <= second.items(),
        "in_both": len(alone.keys() & second.keys()), "same_programs": alone.keys() == second.keys(),
        "once_more_unchanged": second == third,
    }  # fmt: skip


def interrupted(command: list[str], folder: Path, trials: int) -> int:
    """Runs the command until its database has so many trials, then sends SIGINT; its exit status."""
    process = subprocess.Popen(command, stdout=sys.stderr, start_new_session=True)
    while process.poll() is None and len(trials_of(folder)) < trials:
        time.sleep(_LOOK)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    return process.wait()


def trials_of(folder: Path) -> Trials:
    """All rows of a folder's database: seconds and date by place, subgraph and program; none before there is one."""
    path = folder / "trials.sqlite"
    if not path.exists():
        return {}
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        rows = connection.execute("SELECT place, subgraph, program, seconds, measured_at FROM trials").fetchall()
    except sqlite3.Error:  # it is being made
        return {}
    finally:
        connection.close()
    return {tuple(row[:3]): tuple(row[3:]) for row in rows}


# --- the rest ---------------------------------------------------------------------------------------------------------


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder, in which this process and its children keep what they find: nothing is known from before."""
    with tempfile.TemporaryDirectory(prefix="rlflow-tuned-") as name:
        os.environ["RLFLOW_CACHE"] = os.path.join(name, "cache")
        yield Path(name)


def children_seconds() -> float:
    """Processor seconds of all processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def key_of(name: str) -> str:
    return Path(name).stem if name.endswith(".onnx") else name


MODEL_HEADINGS = (
    "Model", "Tuned over untuned", "95 %", "Untuned over stock", "Tuned over stock", "Kernels", "Other parameters",
    "Trials", "CPU s",
)  # fmt: skip
INTERRUPTED_HEADINGS = (
    "Interrupted", "Before", "After", "Left alone", "Kept unchanged", "Programs of both", "Once more unchanged",
)  # fmt: skip


def table(kept: results.Results) -> list[str]:
    """What was measured, in Markdown."""
    done = [row for row in kept.of("model") if row["exit_status"] == 0]
    lines = list(results.heading(*MODEL_HEADINGS)) if done else []
    for row in done:
        low, high = row["ci95"] or (0.0, 0.0)
        ratios = [f"{row[one]:.3f}" for one in ("untuned_over_stock", "tuned_over_stock")]
        named = ", ".join(f"{count} {name}" for name, count in row["tuned_kernels"].items())
        cells = [row["key"], f"{row['tuned_over_untuned']:.3f}", f"{low:.3f} to {high:.3f}", *ratios, named]
        cells += [row["other_parameters"], row["trials"], f"{row['cpu_seconds']:.0f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    lines += [f"{row['key']}: ended with status {row['exit_status']}" for row in kept.of("model") if row not in done]
    if kept.of("interrupt"):
        lines += results.heading(*INTERRUPTED_HEADINGS)
    for row in kept.of("interrupt"):
        cells = [row[one] for one in ("key", "when_interrupted", "after", "alone", "kept_unchanged", "in_both")]
        lines.append(f"| {' | '.join(map(str, [*cells, row['once_more_unchanged']]))} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=MODELS, metavar="NAME", help="of the zoo, or files")
    parser.add_argument("--method", default="harl")
    parser.add_argument("--budget", default="75s", help="of each tuning")
    parser.add_argument("--optimize", default="60s", help="budget of the optimizer before it")
    parser.add_argument("--race", type=float, default=20.0, help="seconds of the race of the three forms")
    parser.add_argument("--interrupt", type=int, metavar="N", help="interrupt tunings of N programs instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="keep the rows that are there")
    parser.add_argument("--output", type=Path, default=RESULTS)
    results.add_options(parser)
    options = parser.parse_args()
    command = ["python", "reproduce/harl/models.py", *sys.argv[1:]]
    kept = results.Results(options.output, command, resume=options.resume, dirty=options.dirty)
    for name in options.models:
        make = row_of if options.interrupt is None else interrupted_row
        key = key_of(name) if options.interrupt is None else f"{key_of(name)} interrupted {options.method}"
        if not kept.have(key):
            kept.add(make(name, options))
    print(kept.about())
    print("\n".join(table(kept)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
