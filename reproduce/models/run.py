"""The default command on real models: exit, seconds against the budget, gains, interface, checker, outputs.

    python reproduce/models/run.py --data FOLDER [--models NAME ...] [--budget 60s] [--out FILE] [--resume]

FOLDER holds ``manifest.json`` (a list of objects with ``name`` and ``feed``: input -> shape, dtype, value) and one
``NAME.onnx`` each. A model without a feed is one that the runtime cannot run: it must be refused, in a sentence that
names the operator. Exit status 1 where anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1] / "common"))

import results  # from the folder "common"

import rlflow

CLI = [sys.executable, "-c", "from rlflow.cli import main; main()"]
HEADINGS = ("model", "exit", "seconds", "budget, s", "clean-up", "rewrites", "interface", "checker", "outputs", "")
#: Of a report, what the table needs.
KEPT = ("improved", "speedup", "original_ms", "baseline_ms", "optimized_ms", "reason", "cost_model", "seconds_total")


def run(path: Path, feed: dict[str, Any] | None, budget: str, folder: Path) -> dict[str, Any]:
    """A row: what the command did with one model, and whether what it wrote is what came."""
    target, report = folder / f"{path.stem}.out.onnx", folder / f"{path.stem}.json"
    command = [*CLI, "optimize", os.fspath(path), "-o", os.fspath(target), "--budget", budget]
    started = time.monotonic()
    done = subprocess.run([*command, "--json", os.fspath(report)], capture_output=True, text=True)
    row: dict[str, Any] = {"kind": "model", "key": path.stem, "exit": done.returncode, "budget": budget}
    row["seconds"] = round(time.monotonic() - started, 1)
    if done.returncode != 0:
        return {**row, "sentence": done.stderr.strip().splitlines()[-1]}
    found = json.loads(report.read_text(encoding="utf-8"))
    row |= {name: found.get(name) for name in KEPT}
    row["interface"] = interface(path) == interface(target)
    row["checker"] = complaint(target) is None or complaint(path) is not None
    given = {name: array(spec, number) for number, (name, spec) in enumerate((feed or {}).items())}
    outcome = rlflow.verify(path, target, input_data=given)
    return {**row, "outputs": bool(outcome.passed), "difference": outcome.failure()}


def interface(path: Path) -> list[tuple[Any, ...]]:
    """Names, element types and dimensions of inputs (without initialisers) and outputs, in order."""
    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    infos = [*(info for info in graph.input if info.name not in weights), *graph.output]
    return [(info.name, info.type.SerializeToString(deterministic=True)) for info in infos]


def complaint(path: Path) -> str | None:
    """What onnx's checker finds wrong, or ``None``."""
    try:
        onnx.checker.check_model(os.fspath(path))
    except (onnx.checker.ValidationError, ValueError) as error:
        return str(error)
    return None


def array(spec: dict[str, Any], seed: int) -> np.ndarray:
    """An input of a manifest: its value, or seeded elements (small integers, which any table of rows has)."""
    shape, dtype = spec["shape"], np.dtype(spec["dtype"])
    if "value" in spec:
        return np.full(shape, spec["value"], dtype)
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)).astype(dtype)


def sound(row: dict[str, Any], feed: dict[str, Any] | None) -> bool:
    """Whether the row is as it should be."""
    if feed is None:
        return row["exit"] == 1 and "does not know the operator" in row.get("sentence", "")
    return row["exit"] == 0 and all(row[name] for name in ("interface", "checker", "outputs"))


def table(rows: list[dict[str, Any]]) -> str:
    lines = [f"| {' | '.join(HEADINGS)} |", "|---|--:|--:|--:|--:|--:|---|---|---|---|"]
    for row in rows:
        before, clean, after = (row.get(f"{name}_ms") for name in ("original", "baseline", "optimized"))
        ratios = [f"{one / other:.2f}" if one and other else "" for one, other in ((before, clean), (clean, after))]
        if not row.get("improved"):
            ratios[1] = "as it came" if row["exit"] == 0 else ""
        checks = ["" if name not in row else "same" if row[name] else "DIFFERS" for name in ("interface", "outputs")]
        checker = "" if "checker" not in row else "passes" if row["checker"] else "COMPLAINS"
        numbers = [str(row["exit"]), f"{row['seconds']:.1f}", row["budget"].rstrip("s"), *ratios]
        cells = [row["key"], *numbers, checks[0], checker, checks[1], row.get("sentence", "")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the models")
    parser.add_argument("--models", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--budget", default="60s", help="of each run")
    here = Path(__file__).resolve().parent / "results" / "latest.jsonl"
    parser.add_argument("--out", type=Path, default=here, help="file of the rows")
    parser.add_argument("--resume", action="store_true", help="keep the models that the file already has")
    results.add_options(parser)
    options = parser.parse_args()
    entries = json.loads((options.data / "manifest.json").read_text(encoding="utf-8"))
    feeds = {entry["name"]: entry["feed"] for entry in entries}
    command = ["python", "reproduce/models/run.py", "--data", options.data.name, "--budget", options.budget]
    kept = results.Results(options.out, command, resume=options.resume, dirty=options.dirty)
    with tempfile.TemporaryDirectory(prefix="rlflow-models-") as scratch:
        for name in options.models or feeds:
            if not kept.have(name):
                kept.add(run(options.data / f"{name}.onnx", feeds[name], options.budget, Path(scratch)))
    print(kept.about())
    print(table(kept.of("model")))
    return 0 if all(sound(row, feeds.get(row["key"], {})) for row in kept.of("model")) else 1


if __name__ == "__main__":
    sys.exit(main())
