"""What `rlflow shrink` gains on convolutional networks: peak memory by the runtime's plan, and by the system's count.

    python reproduce/shrink/run.py [--models resnet-18 unet ...] [--data ../shared/data/models] [--resume] [--dirty]

Models are names of the zoo, or files of the folder --data by their stem. Each is shrunk as users do it, with one
thread, the default order and no session option. `planned`: the peak beside the weights before over after, of values
between operators, outputs and workspace, by the runtime's own graph and planner. `resident`: the growth of the resident
memory of a fresh process over three runs, before over after. `time`: after over before, by the race, with its 95 %
interval.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import results

MODELS = (
    "squeezenet1.1",
    "mobilenet-v2",
    "resnet-18",
    "resnet-50",
    "unet",
    "densenet-121",
    "inception-v3",
    "repvgg-a0",
    "shufflenet-v2",
    "fpn-resnet18",
    "ultraface_slim320_simplified",
    "yolox_nano",
    "retinaface_640_opt",
    "candy_style",
)
RESULTS = HERE / "results" / "shrink.jsonl"


def of_model(name: str, data: Path, slower: float, seconds: float) -> dict[str, Any]:
    """A row for one model."""
    from rlflow import optimizer, zoo
    from rlflow.errors import RlflowError

    row: dict[str, Any] = {"kind": "model", "key": name, "model": name, "slower": slower}
    with tempfile.TemporaryDirectory() as folder:
        path = data / f"{name}.onnx"
        if name in zoo.names():
            path = Path(folder) / "model.onnx"
            path.write_bytes(zoo.build(name).SerializeToString())
        out = os.path.join(folder, "small.onnx")
        try:
            report = optimizer.shrink(path, output=out, slower=slower, seconds=seconds, race_seconds=20.0).report
        except RlflowError as error:
            return row | {"error": str(error)}
    before, after = report.before, report.after
    grown = None
    if before.resident is not None and after.resident is not None:
        grown = round(before.resident / max(after.resident, 1), 3)
    return row | {
        "planned": round(report.ratio, 3), "resident": grown, "time": report.slowdown, "ci95": report.slowdown_ci95,
        "before": before._asdict(), "after": after._asdict(), "weights": report.weights,
        "stretches": list(report.stretches), "front": [one._asdict() for one in report.front],
        "equal": None if report.verified is None else report.verified.passed, "notes": list(report.notes),
    }  # fmt: skip


def table(kept: results.Results) -> str:
    """What was measured, in Markdown."""
    lines = [kept.about(), *results.heading("Model", "Planned, ×", "Resident, ×", "Time, ×", "95 %", "Stretches")]
    for row in kept.of("model"):
        if "error" in row:
            lines.append(f"| {row['model']} | {row['error']} | | | | |")
            continue
        low, high = row["ci95"] or (1.0, 1.0)
        grown = "" if row["resident"] is None else f"{row['resident']:.2f}"
        lines.append(
            f"| {row['model']} | {row['planned']:.2f} | {grown} | {row['time'] or 1.0:.2f} | {low:.2f} to {high:.2f} | "
            f"{len(row['stretches'])} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/models"))
    parser.add_argument("--slower", type=float, default=1.1)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each search")
    parser.add_argument("--resume", action="store_true", help="keep the rows that are there")
    parser.add_argument("--output", type=Path, default=RESULTS)
    results.add_options(parser)
    options = parser.parse_args()
    command = ["reproduce/shrink/run.py", *sys.argv[1:]]
    kept = results.Results(options.output, command, resume=options.resume, dirty=options.dirty)
    for name in options.models:
        if not kept.have(name):
            kept.add(of_model(name, options.data, options.slower, options.seconds))
    print(table(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
