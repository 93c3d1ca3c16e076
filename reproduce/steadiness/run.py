"""Is the answer the same each time? The default command, several times a model, alone and beside two busy programs.

    python reproduce/steadiness/run.py [--models NAME ...] [--budget 60s] [--repeats 2] [--out FILE] [--resume]

Every run starts with an empty price database and another seed. Half of them run beside two programs that keep two
cores busy (one multiplies matrices, one walks through memory), which this script starts and ends. A run is right where
its gain is at least 95 % of the best that any run of its model claimed. What was written is timed again, original
against result, by a race of its own: a claim is false where that finds the result slower. Bar: 18 of 20 right, none
false. Exit status 1 where it is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1] / "common"))

import results  # from the folder "common"
import sweep

MODELS = ("squeezenet1.1", "nasrnn", "bert6-classifier", "shufflenet-v2", "repvgg-a0")
CONDITIONS = ("alone", "busy")
#: A gain may be so much smaller than the best-known, and so many runs of a hundred may be further off.
WITHIN, BAR = 0.95, 0.9
#: Seconds of the race that a claim is checked by.
CONTROL_SECONDS = 10.0
NEIGHBOURS = (
    "import numpy as np\na = np.ones((512, 512), np.float32)\nwhile True: a @ a",
    "import numpy as np\na = np.zeros(1 << 24)\nwhile True: a += 1.0",
)
Row = dict[str, Any]


def main() -> int:
    options = arguments()
    command = ["python", "reproduce/steadiness/run.py", "--budget", options.budget, "--repeats", str(options.repeats)]
    kept = results.Results(
        options.out, command, resume=options.resume, dirty=options.dirty, bulky=[*sweep.BULKY, "trace"]
    )
    for repeat, name, condition in itertools.product(range(options.repeats), options.models, CONDITIONS):
        key = f"{name}/{condition}/{repeat}"
        if not kept.have(key):
            kept.add({"key": key, "condition": condition, **once(name, condition, repeat, options.budget)})
    print(kept.about())
    print("\n".join(table(kept.rows)))
    return 0 if passed(kept.rows) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS), metavar="NAME")
    parser.add_argument("--budget", default="60s", help="of each run")
    parser.add_argument("--repeats", type=int, default=2, help="of each model, alone and busy")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "latest.jsonl")
    parser.add_argument("--resume", action="store_true", help="keep the runs that the file already has")
    results.add_options(parser)
    return parser.parse_args()


def once(name: str, condition: str, seed: int, budget: str) -> Row:
    """One run from nothing: the figures of its report, and what the control says of what it wrote."""
    with tempfile.TemporaryDirectory(prefix="rlflow-steadiness-") as folder, neighbours(condition == "busy"):
        source, target, report = (Path(folder) / part for part in ("model.onnx", "out.onnx", "report.json"))
        sweep.run([*sweep.CLI, "zoo", "export", name, "-o", os.fspath(source)])
        environment = {**os.environ, "RLFLOW_CACHE": os.fspath(Path(folder) / "cache")}
        status = subprocess.run(
            [*sweep.CLI, "optimize", os.fspath(source), "-o", os.fspath(target), "--json", os.fspath(report),
             "--budget", budget, "--seed", str(seed), "--quiet"],
            env=environment, stdout=sys.stderr,
        ).returncode  # fmt: skip
        found = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
        control = again(source, target, seed) if found.get("improved") else None
    fields = ("improved", "reason", "speedup", "speedup_ci95", "original_ms", "seconds_total", "cost_before_ms",
              "cost_after_ms", "stages")  # fmt: skip
    figures = {field: found.get(field) for field in fields}
    return {"kind": "run", "name": name, "seed": seed, "exit_status": status, **figures, "control": control}


@contextlib.contextmanager
def neighbours(wanted: bool) -> Iterator[None]:
    """Two programs that keep two cores busy, while the block runs."""
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    running = [subprocess.Popen([sys.executable, "-c", text], env=one_thread) for text in NEIGHBOURS if wanted]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def again(source: Path, target: Path, seed: int) -> Row:
    """Original against result, on samples that neither the search nor its race has seen."""
    import numpy as np

    from rlflow.race.gate import choose
    from rlflow.runtime import FeedSpec, Worker, random_array

    with Worker() as worker:
        rng, feeds = np.random.default_rng(seed), {}
        for one in worker.interface(os.fspath(source)).inputs:
            shape = tuple(dim if isinstance(dim, int) else 1 for dim in one.shape)
            feeds[one.name] = random_array(FeedSpec(shape, one.dtype), rng)
        found = choose(
            worker, os.fspath(source), {"result": os.fspath(target)}, feeds, seconds=CONTROL_SECONDS, seed=1000 + seed
        )
    return {"speedup": found.speedup or found.first_sample.get("result"), "ci95": found.speedup_ci95}


def is_false(row: Row) -> bool:
    """Whether the control finds slower what was claimed to be faster."""
    control = row["control"]
    if control is None:
        return False
    high = control["ci95"][1] if control["ci95"] else control["speedup"]
    return high is not None and high < 1.0


def gain(row: Row) -> float:
    return float(row["speedup"]) if row["improved"] else 1.0


def best_known(rows: list[Row]) -> dict[str, float]:
    return {
        name: max(gain(row) for row in rows if row["name"] == name) for name in dict.fromkeys(r["name"] for r in rows)
    }


def right(rows: list[Row]) -> list[Row]:
    best = best_known(rows)
    return [row for row in rows if row["exit_status"] == 0 and gain(row) >= WITHIN * best[row["name"]]]


def passed(rows: list[Row]) -> bool:
    return len(right(rows)) >= BAR * len(rows) and not any(map(is_false, rows))


def table(rows: list[Row]) -> Iterator[str]:
    """Gains by model and condition, one after the other; then the bar."""
    yield from results.heading("model", "best-known", *CONDITIONS, "controls", "right")
    good = right(rows)
    for name, best in best_known(rows).items():
        mine = [row for row in rows if row["name"] == name]
        cells = [", ".join(f"{gain(row):.2f}" for row in mine if row["condition"] == one) for one in CONDITIONS]
        controls = ", ".join(
            f"{row['control']['speedup']:.2f}" for row in mine if (row["control"] or {}).get("speedup")
        )
        count = sum(row in good for row in mine)
        yield f"| {name} | {best:.2f} | {' | '.join(cells)} | {controls} | {count} of {len(mine)} |"
    yield ""
    false = sum(map(is_false, rows))
    yield f"{len(good)} of {len(rows)} within {1 - WITHIN:.0%} of the best-known; {false} false claims."


if __name__ == "__main__":
    sys.exit(main())
