"""Placement and splitting: what the searches find, how fast the simulator is, and what parts serve.

    python reproduce/go/run.py [--only PART ...] [--data DIR] [--evaluations 10000] [--seeds 5]
    python reproduce/go/run.py --only policy --setting reduced      about 20 minutes of one core; full: many hours
    python reproduce/go/run.py --only policy without --setting tiny --out tiny.jsonl      only shows that they run

doppler: DOPPLER's four graphs (`DIR/doppler/*.txt`) on 4 equal devices in the rules of its simulator; the placers that
search or learn on the graph have equal evaluations, and the median over seeds is printed (GDP-style, Placeto-style:
rivals.py). GO has 64 evaluations alone, 1,000 with annealing's moves, and 8,200 with its 50 steps. ratio: time by the
critical path over time by the placer; gap: time over the lower bound. simulator: node events a second of processor
time. split: `rlflow split -n 2`, then `rlflow run --requests 50 --pin --against`: requests a second in two pinned
processes over those in one; and the same by processor time, which other programs cannot spoil.

policy: GO's policy on two graphs of a family that it was not trained on. Every figure is over the best that any search
or rule found on those graphs, so 1 is as good, and less is better. Alone the policy tries 64 placements; otherwise
1,000 are tried, eight of annealing's moves for each of its own, and those with steps have 7,200 more, in 50 updates.
without: the policy with a part left out. Both go on where they were stopped, also within a training; `--setting` says
how much is done, and is in every row. large: one decision about 80,000 nodes.
reality: seconds of a request of `--models` cut in two at nine places, simulated from a profile of the whole, and by the
clock in two pinned processes. minimalloc: its instances (`DIR/minimalloc/*.csv`) packed. iopddl: the contest's
instances (`DIR/iopddl/*.json.gz`), `--seconds` of processor time each. fusion: TorchInductor's kernels for six graphs,
really compiled and timed; `--fusions` evaluations of each way to decide, and the wholes beside Inductor's own choice.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import doppler
import fusion
import iopddl
import learned
import offsets
import reality
import results

from rlflow.placement import Devices, PlacementTask
from rlflow.testing.placers import layered_work

PARTS = ("simulator", "doppler", "split", "minimalloc", "iopddl", "large", "policy", "without", "reality", "fusion")
MODELS = ("squeezenet1.1", "resnet-18", "mobilenet-v2", "densenet-121", "inception-v3")
RESULTS = HERE / "results" / "go.jsonl"
DATA = HERE.parents[2] / "shared" / "data"


def simulator() -> Iterator[dict[str, Any]]:
    """A row for each size: tasks that end, a second."""
    for layers, width, count in ((50, 20, 4), (400, 20, 4), (4000, 20, 4), (4000, 20, 8)):
        task = PlacementTask(layered_work(np.random.default_rng(0), layers, width), Devices.alike(count))
        rows = np.random.default_rng(1).integers(0, count, (max(1, 400_000 // task.nodes), task.nodes), dtype=np.int32)
        began = time.thread_time()
        task.scores(rows)
        seconds = time.thread_time() - began
        yield {
            "kind": "simulator",
            "key": f"simulator {task.nodes} {count}",
            "tasks": task.nodes,
            "devices": count,
            "events_per_s": round(rows.size / seconds),
        }


def split(models: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """A row for each model."""
    start = [sys.executable, "-m", "rlflow"]
    with tempfile.TemporaryDirectory() as folder:
        for name in models:
            model, parts = Path(folder, f"{name}.onnx"), Path(folder, name)
            subprocess.run([*start, "zoo", "export", name, "-o", model], check=True, capture_output=True)
            subprocess.run([*start, "split", model, "-n", "2", "-o", parts, "--json"], check=True, capture_output=True)
            command = [*start, "run", parts, "--requests", "50", "--pin", "--against", model, "--json"]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            yield {"kind": "split", "key": f"split {name}", "model": name, "parts": 2, **{
                key: found[key] for key in ("ratio", "processor_ratio", "identical", "worst")
            }}  # fmt: skip


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The tables, in Markdown."""
    found = {kind: [row for row in rows if row["kind"] == kind] for kind in PARTS}
    if found["simulator"]:
        yield from results.heading("tasks", "devices", "million node events a second")
        for row in found["simulator"]:
            yield f"| {row['tasks']} | {row['devices']} | {row['events_per_s'] / 1e6:.2f} |"
    if found["doppler"]:
        yield from results.heading("graph", "placer", "evaluations", "time", "ahead of critical path", "over the bound")
        for row in sorted(found["doppler"], key=lambda row: row["graph"]):
            figures = (f"{row['value']:.4g}", f"{row['ratio']:.3f}", f"{row['gap']:.3f}")
            yield f"| {row['graph']} | {' | '.join((row['placer'], str(row['evaluations']), *figures))} |"
    if found["split"]:
        yield from results.heading("model", "parts serve", "by processor time", "outputs")
        for row in found["split"]:
            same = "identical" if row["identical"] else f"within {row['worst']:.2g}"
            yield f"| {row['model']} | {row['ratio']:.2f} | {row['processor_ratio']:.2f} | {same} |"
    if found["minimalloc"]:
        yield from results.heading("minimalloc", "buffers", "packed", "s")
        for row in found["minimalloc"]:
            done = "yes" if row["packed"] else "no"
            yield f"| {row['instance']} | {row['buffers']} | {done} | {row['seconds']:.2f} |"
    if found["iopddl"]:
        yield from results.heading("iopddl", "nodes", "over the contest's best", "over the lower bound", "valid", "s")
        for row in found["iopddl"]:
            over, gap = ("–" if row[one] is None else f"{row[one]:.4f}" for one in ("over_best", "gap"))
            done = "yes" if row["valid"] else "no"
            yield f"| {row['instance']} | {row['nodes']} | {over} | {gap} | {done} | {row['seconds']:.0f} |"
    if found["reality"]:
        yield from results.heading("model", "cuts", "rank correlation", "clock over simulated", "lowest", "highest")
        for row in found["reality"]:
            figures = (row["rank_correlation"], row["ratio"], row["lowest"], row["highest"])
            yield f"| {row['model']} | {len(row['cuts'])} | {' | '.join(f'{one:.2f}' for one in figures)} |"
    if found["fusion"]:
        yield from fusion.table(found["fusion"])
    yield from learned_table(found)


def learned_table(found: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """The tables of the policy."""
    if found["policy"]:
        yield from results.heading(
            "setting", "family", "task", "nodes", "seeds", "best of the others", "annealing, as many", *learned.COLUMNS
        )
        groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for row in found["policy"]:
            groups.setdefault((row["setting"], row["family"], row["task"]), []).append(row)
        for (setting, family, task), rows in sorted(groups.items()):
            tried = learned.SETTINGS[setting].tried
            over = [learned.over_the_others(rows, lambda row: row["others"][f"annealing {tried}"])]  # noqa: B023
            over += [learned.over_the_others(rows, lambda row, one=one: row[one]) for one in learned.COLUMNS]
            best = ", ".join(dict.fromkeys(min(row["others"], key=row["others"].__getitem__) for row in rows))
            nodes = ", ".join(dict.fromkeys(str(row["nodes"]) for row in rows))
            cells = (family, task, nodes, str(len({row["seed"] for row in rows})), best)
            yield f"| {setting} | {' | '.join(cells)} | {' | '.join(f'{one:.3f}' for one in over)} |"
    if found["without"]:
        tasks = list(found["without"][0]["means"])
        yield from results.heading("setting", "policy", "weights", *tasks)
        for row in found["without"]:
            means = (f"{row['means'].get(task, float('nan')):.3f}" for task in tasks)
            yield f"| {row['setting']} | {row['part']} | {row['weights']} | {' | '.join(means)} |"
    if found["large"]:
        yield from results.heading("placer", "nodes", "processor s", "peak GB", "over the lower bound")
        for row in found["large"]:
            figures = f"{row['processor_s']:.1f} | {row['peak_gb']:.2f} | {row['over_bound']:.3f}"
            yield f"| {row['placer']} | {row['nodes']} | {figures} |"


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with doppler/*.txt (make fetch-data)")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--placers", nargs="+", metavar="NAME", help="of doppler (default: all)")
    parser.add_argument("--evaluations", type=int, default=10_000, help="of doppler's placers that search or learn")
    parser.add_argument("--seeds", type=int, default=5, help="of doppler's placers that draw")
    parser.add_argument("--setting", choices=list(learned.SETTINGS), default="reduced", help="of policy and without")
    parser.add_argument("--families", nargs="+", metavar="NAME", help="of policy (default: all of its setting)")
    parser.add_argument("--training-seeds", nargs="+", type=int, metavar="N", help="of policy (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="trainings of policy side by side, a core each")
    parser.add_argument("--instances", nargs="+", metavar="NAME", help="of iopddl (default: all)")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each instance of iopddl")
    parser.add_argument("--nodes", type=int, default=80_000, help="of the large graph")
    parser.add_argument("--fusions", type=int, default=32, help="evaluations of each way to decide about fusion")
    parser.add_argument(
        "--again", action="store_true", help="make rows of doppler, policy, without and fusion that are there"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the rows")
    results.add_options(parser)
    return parser


def main() -> None:
    given = options().parse_args()
    file = results.Results(given.out, ["python", "reproduce/go/run.py", *sys.argv[1:]], resume=True, dirty=given.dirty)
    kept = results.RAW / "go" / str(file.commit)  # trainings, to go on with

    def have(**fields: Any) -> bool:
        """Whether a row has all of these."""
        return not given.again and any(all(row.get(one) == fields[one] for one in fields) for row in file.rows)

    sources = {
        "simulator": simulator,
        "doppler": lambda: doppler.placed(
            given.data / "doppler", given.evaluations, given.seeds, given.placers, have
        ),
        "split": lambda: split(tuple(given.models)),
        "reality": lambda: reality.compared(given.models),
        "minimalloc": lambda: offsets.packed(given.data / "minimalloc"),
        "iopddl": lambda: iopddl.chosen(given.data / "iopddl", given.seconds, given.instances),
        "large": lambda: learned.large(given.nodes),
        "policy": lambda: learned.left_out(
            given.setting, given.families, kept, have, seeds=given.training_seeds, jobs=given.jobs
        ),
        "without": lambda: learned.without(given.setting, kept, have),
        "fusion": lambda: fusion.fused(given.fusions, have),
    }  # fmt: skip
    for part in given.only:
        for row in sources[part]():
            file.drop(lambda old, key=row["key"]: old["key"] == key)
            file.add(row)
    print(file.about())
    print("\n".join(table(file.rows)))


if __name__ == "__main__":
    main()
