"""What other tools make of the exported models, each timed against the model as it came, beside rlflow's result.

    python reproduce/exports/peers.py [--only NAME ...] [--tools TOOL ...] [--blocks 5] [--seconds 2] [--threads 1]
        [--rows FILE] [--resume]

Needs `pip install -c constraints.txt '.[bench,peers]'`, and the models that run.py left under build/exports. Each tool
writes its model in a process of its own; what it wrote is compared with the original (`rlflow verify`), and only what
computes the same is timed. All models of one architecture run in turn in ONNX Runtime, by the processor time of one
thread (with more threads by the clock on the wall), in some fresh processes; OpenVINO runs the original in its own
runtime, in turn with those. "itself" is the
original a second time: how much of a difference is noise. rlflow's result is the file that run.py kept; FILE (here
results/latest.jsonl) says where it kept the model as it came. results/peers.jsonl holds one row a model and tool.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [os.fspath(HERE), os.fspath(HERE.parent / "common")]

import machine
import results
from gains import CONFIG, kept_file, key, mean, model_file, names, plain, sound

machine.PACKAGES = (*machine.PACKAGES, "onnxsim", "onnxslim", "onnxscript", "openvino")
LATEST = HERE / "results" / "peers.jsonl"
#: What one tool may take for one model.
SECONDS = 300
ITSELF, OURS, OPENVINO = "itself", "rlflow", "OpenVINO"


def onnxsim(source: Path, target: Path, name: str) -> None:
    import onnx
    from onnxsim import simplify

    model, same = simplify(os.fspath(source))
    if not same:
        raise RuntimeError("onnxsim says that its result computes something else")
    onnx.save(model, target)


def onnxslim(source: Path, target: Path, name: str) -> None:
    import onnx
    from onnxslim import slim

    onnx.save(slim(os.fspath(source)), target)


def onnxscript(source: Path, target: Path, name: str) -> None:
    import onnx
    from onnxscript import optimizer, rewriter

    onnx.save(rewriter.rewrite(optimizer.optimize(onnx.load(source))), target)


def transformers(source: Path, target: Path, name: str) -> None:
    from onnxruntime.transformers.optimizer import optimize_model

    found = optimize_model(os.fspath(source), model_type=CONFIG["transformers"][plain(name)])
    found.save_model_to_file(os.fspath(target))


#: The tools that write a model, by their names in the table.
WRITERS: dict[str, Callable[[Path, Path, str], None]] = {
    "onnxsim": onnxsim,
    "onnxslim": onnxslim,
    "onnxscript": onnxscript,
    "ORT transformers": transformers,
}
TOOLS = (ITSELF, OURS, *WRITERS, OPENVINO)


def fits(tool: str, name: str) -> bool:
    """ONNX Runtime's optimiser of transformers wants to be told which kind a model is; it knows some."""
    return tool != "ORT transformers" or plain(name) in CONFIG["transformers"]


def attempt(command: Sequence[str], target: Path) -> str | None:
    """Runs a tool; what went wrong, or ``None`` where there is a model."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"took more than {SECONDS} s"
    if done.returncode < 0:
        return f"was ended by signal {-done.returncode}"
    if done.returncode > 0:
        return (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1][:200]
    return None if target.exists() else "wrote no model"


def difference(source: Path, target: Path) -> str | None:
    """How what a tool wrote differs from the original, or ``None``."""
    import rlflow
    from rlflow.errors import RlflowError

    try:
        return rlflow.verify(source, target).failure() or None
    except RlflowError as error:
        return " ".join(str(error).split())[:200]


def written(
    name: str, source: Path, folder: Path, tools: Sequence[str] = TOOLS
) -> tuple[dict[str, Path], dict[str, str]]:
    """The models that the tools wrote and that compute the same; and what went wrong with the others."""
    models: dict[str, Path] = {}
    errors: dict[str, str] = {}
    for tool in (tool for tool in WRITERS if tool in tools and fits(tool, name)):
        target = folder / f"{tool.replace(' ', '-')}.onnx"
        command = [sys.executable, __file__, "--write", tool, os.fspath(source), os.fspath(target), name]
        error = attempt(command, target) or difference(source, target)
        if error is None:
            models[tool] = target
        else:
            errors[tool] = error
    return models, errors


def timed(
    models: dict[str, Path], source: Path, blocks: int, seconds: float, threads: int = 1, openvino: bool = True
) -> dict[str, list[float]]:
    """By tool, how many times as fast as the original its model is, one figure a block. A block is a process of ONNX
    Runtime's with all models and one of OpenVINO's. ``seconds`` for each model in each block."""
    from rlflow.benchmark import bench
    from rlflow.errors import RuntimeRefused

    found: dict[str, list[float]] = {tool: [] for tool in (*models, OPENVINO)}
    entrants, how = [source, *models.values()], {"threads": [threads], "blocks": 1}
    for block in range(blocks):
        times = bench(entrants, seconds=seconds * len(entrants), seed=block, **how)
        for tool, one in zip(models, times[1:], strict=True):
            found[tool].append(one.ratio)
        if not openvino:
            continue
        try:
            other = bench([source], seconds=seconds, seed=block, runtime="openvino", **how)[0]
        except RuntimeRefused:
            continue
        clock = times[0].clock
        found[OPENVINO].append(getattr(times[0], clock).median / getattr(other, clock).median)
    return found


def measure(name: str, options: argparse.Namespace, as_it_came: bool) -> list[dict[str, Any]]:
    """The rows of one model, one a tool."""
    source, ours = model_file(name, options.seed), kept_file(name, options.seed)
    with tempfile.TemporaryDirectory(prefix="rlflow-peers-") as scratch:
        models, errors = written(name, source, Path(scratch), options.tools)
        same = Path(scratch) / "itself.onnx"
        shutil.copyfile(source, same)
        mine = {OURS: ours} if ours.exists() and not as_it_came else {}
        entrants, asked = {ITSELF: same, **mine, **models}, OPENVINO in options.tools and has_openvino()
        ratios = timed(entrants, source, options.blocks, options.seconds, options.threads, asked)
    rows = [
        {"tool": tool, "gain": statistics.median(some), "blocks": sorted(some)} for tool, some in ratios.items() if some
    ]
    rows += [{"tool": OURS, "gain": 1.0, "blocks": []}] if as_it_came else []
    rows += [{"tool": tool, "error": error} for tool, error in errors.items()]
    rows += [{"tool": OPENVINO, "error": "does not run the model"}] if asked and not ratios[OPENVINO] else []
    about = {"kind": "peer", "name": name, "held_out": plain(name) in CONFIG["held_out"]}
    about |= {"threads": options.threads} if options.threads > 1 else {}
    return [{**about, **row} for row in sorted(rows, key=lambda row: TOOLS.index(row["tool"]))]


def has_openvino() -> bool:
    """Where it is not installed, there is no row of it."""
    return importlib.util.find_spec("openvino") is not None


def kept_as_it_came(file: Path, here: str) -> set[str]:
    """The models for which rlflow gave back what it got, on this machine."""
    rows, runs = results.read(file)
    return {row["name"] for row in rows if key(row, runs)[1] == here and sound(row) and not row.get("improved")}


def threads_of(row: dict[str, Any]) -> int:
    return int(row.get("threads", 1))


def cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    return f"{row['gain']:.2f}" if "gain" in row else "failed"


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each model, the means, and what went wrong. A tool that failed counts as 1 in its mean: the user keeps
    the model."""
    cells = {(row["name"], row["tool"]): row for row in rows}
    measured = [name for name in names() if (name, ITSELF) in cells]
    tools = [tool for tool in TOOLS if any(row["tool"] == tool for row in rows)]
    lines = [*results.heading("Model", *tools)]
    for name in measured:
        lines.append(f"| {' | '.join([name, *(cell(cells.get((name, tool))) for tool in tools)])} |")
    averages = []
    for tool in tools:
        gains = [float(cells[name, tool].get("gain", 1.0)) for name in measured if (name, tool) in cells]
        averages.append(f"{mean(gains):.3f} ({len(gains)})" if gains else "")
    lines += [f"| **geometric mean (models)** | {' | '.join(averages)} |", ""]
    failures = [f"* {row['name']}, {row['tool']}: {row['error'][:120]}" for row in rows if "error" in row]
    return [
        *lines,
        *(["Where a tool failed, or what it wrote is not the same model:", "", *failures, ""] if failures else []),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], choices=names(), metavar="NAME")
    parser.add_argument("--blocks", type=int, default=5, help="fresh processes")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each model in each")
    parser.add_argument("--threads", type=int, default=1, help="of each model")
    parser.add_argument("--tools", nargs="*", default=TOOLS, choices=TOOLS, metavar="TOOL", help="beside the original")
    parser.add_argument("--seed", type=int, default=0, help="of the models that run.py exported")
    parser.add_argument("--rows", type=Path, default=HERE / "results" / "latest.jsonl", help="run.py's")
    parser.add_argument("--out", type=Path, default=LATEST, help="file of the rows")
    parser.add_argument("--resume", action="store_true", help="leave out the models that have rows of this machine")
    parser.add_argument("--write", nargs=4, metavar=("TOOL", "SOURCE", "TARGET", "NAME"), help=argparse.SUPPRESS)
    results.add_options(parser)
    options = parser.parse_args()
    if options.write:
        tool, source, target, name = options.write
        WRITERS[tool](Path(source), Path(target), name)
        return 0
    command = [
        "python",
        "reproduce/exports/peers.py",
        "--blocks",
        str(options.blocks),
        "--seconds",
        f"{options.seconds:g}",
        "--threads",
        str(options.threads),
    ]
    kept = results.Results(options.out, command, resume=True, dirty=options.dirty)
    here = machine.place(kept.machine)
    unchanged = kept_as_it_came(options.rows, here)

    def mine(row: dict[str, Any]) -> bool:
        return key(row, kept.machines)[1] == here and threads_of(row) == options.threads

    done = {row["name"] for row in kept.rows if options.resume and mine(row)}
    for name in options.only or names():
        if name in done or not model_file(name, options.seed).exists():
            continue
        rows = measure(name, options, name in unchanged)
        kept.drop(lambda old, name=name: old["name"] == name and mine(old))
        kept.extend(rows)
        said = ", ".join(f"{row['tool']} {cell(row)}" for row in rows)
        print(f"{name}: {said}", file=sys.stderr, flush=True)
    found = [row for row in kept.rows if mine(row)]
    print("\n".join(results.about(found, kept.machines)))
    print("\n".join(table(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
