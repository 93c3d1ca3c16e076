"""The kernels beside ONNX Runtime's own, by themselves and in whole models.

    python reproduce/kernels/run.py [--only shapes alone models] [--models resnet-18 unet ...] [--seconds 20] [--dirty]

Shapes: one convolution on blocked tensors, ONNX Runtime's and each algorithm's in turn, processor time of one thread;
the error is the largest over the largest output, against double precision. Alone: the other kernels, likewise. Models:
`--kernels` as users run it, without a search; the ratio is that of the race of whole models, with its 95 % interval.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))
sys.path.insert(0, os.fspath(HERE.parents[1] / "tests" / "kernels"))

import alone
import blocked_models  # what the tests check with
import results

#: Height and width, and channels in and out.
SHAPES = ((56, 64), (28, 128), (14, 256), (7, 512), (128, 64), (64, 128), (32, 256), (16, 512))
MODELS = (
    "resnet-18",
    "unet",
    "squeezenet1.1",
    "resnet-50",
    "densenet-121",
    "inception-v3",
    "repvgg-a0",
    "fpn-resnet18",
    "bert-base",
    "vit-base",
    "llama-decoder-step",
    "resnext-50",
    "nasnet-a",
)
PARTS = ("shapes", "alone", "models")
RESULTS = HERE / "results" / "kernels.jsonl"


# --- one convolution ------------------------------------------------------------------------------------------------


def sessions(weights: np.ndarray, block: int) -> dict[str, Any]:
    """ONNX Runtime's convolution ("") and the kernels, as sessions of one blocked node each."""
    import onnx

    from rlflow.kernels import ALGORITHMS

    found = {}
    for name in ("", *(one.name for one in ALGORITHMS.values() if one.kind == "convolution")):
        fixed = ALGORITHMS[name].attributes() if name else {"tile": 2}
        attributes = {"pads": [1] * 4, "activation": "Relu", **fixed}
        model = onnx.ModelProto.FromString(blocked_models.one_node(weights, None, False, block=block, **attributes))
        if not name:
            node = model.graph.node[0]
            node.domain, node.op_type = "com.microsoft.nchwc", "Conv"
            kept = [one for one in node.attribute if one.name in ("pads", "activation")]
            del node.attribute[:]
            node.attribute.extend(kept)
            model.opset_import[1].domain = node.domain
        found[name] = blocked_models.opened(model.SerializeToString())
    return found


def of_shape(size: int, channels: int, seconds: float) -> list[dict[str, Any]]:
    """A row for each algorithm."""
    from rlflow.kernels.preparing import block_here

    block = block_here()
    rng = np.random.default_rng(0)
    x = np.maximum(rng.standard_normal((1, channels, size, size)), 0).astype(np.float32)
    w = (rng.standard_normal((channels, channels, 3, 3)) / np.sqrt(9 * channels)).astype(np.float32)
    opened = sessions(w, block)
    feeds = {"x": blocked_models.to_blocks(x, block)}
    truth = np.maximum(blocked_models.convolution(x, w, None, None, (1, 1, 1, 1)), 0)
    outputs = {name: blocked_models.from_blocks(one.run(None, feeds)[0], block) for name, one in opened.items()}
    samples: dict[str, list[float]] = {name: [] for name in opened}
    end = time.process_time() + seconds
    while time.process_time() < end or len(samples[""]) < 7:
        for name, one in opened.items():
            start = time.process_time()
            one.run(None, feeds)
            samples[name].append(time.process_time() - start)
    micro = {name: float(np.median(times)) * 1e6 for name, times in samples.items()}
    operations = 2 * 9 * channels * channels * size * size
    return [
        {
            "kind": "shape", "key": f"{size}x{size}x{channels} {name or 'onnxruntime'}", "size": size,
            "channels": channels, "algorithm": name or "onnxruntime", "block": block, "us": round(micro[name], 1),
            "gflops": round(operations / micro[name] / 1e3, 1), "ratio": round(micro[""] / micro[name], 3),
            "error": float(np.abs(outputs[name] - truth).max() / np.abs(truth).max()),
            "samples": len(samples[name]),
        }
        for name in opened
    ]  # fmt: skip


# --- a whole model ----------------------------------------------------------------------------------------------------


def of_model(name: str, seconds: float) -> dict[str, Any]:
    """The race of a zoo model with kernels against the same without, and what its plan chose."""
    from rlflow import zoo
    from rlflow.frontends import blocked
    from rlflow.kernels import ALGORITHMS, KEY, KernelPlan, library_path, preparing
    from rlflow.optimizer import optimize
    from rlflow.race import gate
    from rlflow.runtime import RuntimeOptions, Worker, interface

    with tempfile.TemporaryDirectory() as folder:
        path, out = os.path.join(folder, "model.onnx"), os.path.join(folder, "out.onnx")
        Path(path).write_bytes(zoo.build(name).SerializeToString())
        report = optimize(path, output=out, kernels=True, cost="analytic", search="greedy", budget="1x").report
        said = [note for note in report.notes if "kernels" in note]
        text = interface.metadata_entry(out, KEY)
        row: dict[str, Any] = {"kind": "model", "key": name, "model": name, "ratio": 1.0, "note": said[-1:]}
        if text is None:
            return row
        plan = KernelPlan.parse(text)
        source = blocked.whole(out)
        made, _ = preparing.applied(source, plan)
        with Worker(RuntimeOptions(threads=1, library=library_path())) as worker:
            decision = gate.choose(
                worker, source, {"kernels": made}, feeds_of(worker, source), seconds=seconds, only=True
            )
        used = {one: sum(choice.algorithm == one for choice in plan.choices) for one in ALGORITHMS}
        return row | {
            "ratio": decision.speedup, "ci95": decision.speedup_ci95, "kernels": used, "claimed": plan.speedup,
            "ms": decision.timings["baseline"].ms,
        }  # fmt: skip


def feeds_of(worker: Any, source: bytes) -> dict[str, Any]:
    from rlflow.equivalence import make_inputs

    return make_inputs(worker.interface(source).inputs, 0, {}, None, {})


# --- the tables -------------------------------------------------------------------------------------------------------


def tables(kept: results.Results) -> str:
    """What was measured, in Markdown."""
    lines = [kept.about()]
    if kept.of("shape"):
        lines += results.heading("Shape", "µs", "GF/s", "×", "Error")
        for row in kept.of("shape"):
            lines.append(
                f"| {row['key']} | {row['us']:.0f} | {row['gflops']:.0f} | {row['ratio']:.2f} | {row['error']:.1e} |"
            )
    if kept.of("alone"):
        lines += results.heading("Kernel and shape", "×", "Pace", "ONNX Runtime's", "Error", "ONNX Runtime's")
        for row in kept.of("alone"):
            paces = f"{row['pace']:.0f} {row['unit']} | {row['onnxruntime_pace']:.0f}"
            lines.append(
                f"| {row['key']} | {row['ratio']:.2f} | {paces} | {row['error']:.1e} | {row['onnxruntime_error']:.1e} |"
            )
    if kept.of("model"):
        lines += results.heading("Model", "ms", "×", "95 %", "Kernels")
        lines += [model_line(row) for row in kept.of("model")]
    return "\n".join(lines)


def model_line(row: dict[str, Any]) -> str:
    used = row.get("kernels") or row.get("convolutions")  # as earlier runs called them
    if used is None:
        return f"| {row['model']} | | 1.00 | | |"
    low, high = row["ci95"] or (0.0, 0.0)
    named = ", ".join(f"{count} {name}" for name, count in used.items() if count)
    return f"| {row['model']} | {row['ms']:.1f} | {row['ratio']:.2f} | {low:.2f} to {high:.2f} | {named} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each race of whole models")
    parser.add_argument("--shape-seconds", type=float, default=2.0)
    parser.add_argument("--resume", action="store_true", help="keep the rows that are there")
    parser.add_argument("--output", type=Path, default=RESULTS)
    results.add_options(parser)
    options = parser.parse_args()
    command = ["reproduce/kernels/run.py", *sys.argv[1:]]
    kept = results.Results(options.output, command, resume=options.resume, dirty=options.dirty)
    for size, channels in SHAPES if "shapes" in options.only else ():
        for row in (
            []
            if kept.have(f"{size}x{size}x{channels} onnxruntime")
            else of_shape(size, channels, options.shape_seconds)
        ):
            kept.add(row)
    for case in alone.cases() if "alone" in options.only else ():
        if not kept.have(case.key):
            kept.add(alone.row_of(case, options.shape_seconds))
    for name in options.models if "models" in options.only else ():
        if not kept.have(name):
            kept.add(of_model(name, options.seconds))
    print(tables(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
