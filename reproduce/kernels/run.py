"""The kernels beside ONNX Runtime's own, by themselves and in whole models.

    python reproduce/kernels/run.py [--only shapes alone models] [--models resnet-18 unet ...] [--resume] [--dirty]

Shapes: one convolution on blocked tensors, ONNX Runtime's and each algorithm's in turn, processor time of one thread;
the error is the largest over the largest output, against double precision. Alone: the other kernels, likewise. Models:
`rlflow optimize --kernels` as users run it, and its file with kernels against the original; the ratio is that of the
race of whole models, with its 95 % interval, and both errors are against double precision. A model is one of the zoo,
or `exports/NAME` of build/exports, where reproduce/exports/run.py leaves what it exports; --exports takes all of these.

Each instruction set has its own file of results; RLFLOW_KERNELS_ISA forces one, as docs/kernels.md says.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))
sys.path.insert(0, os.fspath(HERE.parents[1] / "tests" / "kernels"))

import alone
import blocked_models  # what the tests check with
import deployed
import results

#: Height and width, channels in and out, and the convolution's height and width.
SHAPES = (
    (56, 64, (3, 3)), (28, 128, (3, 3)), (14, 256, (3, 3)), (7, 512, (3, 3)), (128, 64, (3, 3)), (64, 128, (3, 3)),
    (32, 256, (3, 3)), (16, 512, (3, 3)), (17, 192, (1, 7)), (17, 192, (7, 1)), (17, 128, (1, 7)), (8, 384, (1, 3)),
    (8, 384, (3, 1)), (35, 64, (5, 5)),
)  # fmt: skip
PARTS = ("shapes", "alone", "overhead", "models")
RESULTS = HERE / "results"


def results_file() -> Path:
    """Of the instruction set that the kernels use here."""
    from rlflow.kernels.preparing import block_here

    isa = os.environ.get("RLFLOW_KERNELS_ISA") or {16: "avx512", 8: "avx2"}.get(block_here(), "portable")
    return RESULTS / ("kernels.jsonl" if isa == "avx512" else f"kernels-{isa}.jsonl")


# --- one convolution ------------------------------------------------------------------------------------------------


def sessions(weights: np.ndarray, block: int) -> dict[str, Any]:
    """ONNX Runtime's convolution ("") and the kernels, as sessions of one blocked node each."""
    import onnx

    from rlflow.frontends.kernel_kinds import TAPS
    from rlflow.kernels import ALGORITHMS

    kind, found = TAPS[weights.shape[2:]], {}
    for name in ("", *(one.name for one in ALGORITHMS.values() if one.kind == kind)):
        fixed = ALGORITHMS[name].attributes() if name else {"tile": 2}
        attributes = {"pads": pads_of(weights), "activation": "Relu", **fixed}
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


def pads_of(weights: np.ndarray) -> list[int]:
    """Those that leave the size as it is."""
    return [size // 2 for size in weights.shape[2:]] * 2


def key_of(size: int, channels: int, taps: tuple[int, int], algorithm: str) -> str:
    kernel = "" if taps == (3, 3) else f" by {taps[0]}x{taps[1]}"
    return f"{size}x{size}x{channels}{kernel} {algorithm or 'onnxruntime'}"


def of_shape(size: int, channels: int, taps: tuple[int, int], seconds: float) -> list[dict[str, Any]]:
    """A row for each algorithm."""
    from rlflow.kernels.preparing import block_here

    block = block_here()
    rng = np.random.default_rng(0)
    x = np.maximum(rng.standard_normal((1, channels, size, size)), 0).astype(np.float32)
    w = rng.standard_normal((channels, channels, *taps)) / np.sqrt(taps[0] * taps[1] * channels)
    w = w.astype(np.float32)
    opened = sessions(w, block)
    feeds = {"x": blocked_models.to_blocks(x, block)}
    truth = np.maximum(blocked_models.convolution(x, w, None, None, pads_of(w)), 0)
    outputs = {name: blocked_models.from_blocks(one.run(None, feeds)[0], block) for name, one in opened.items()}
    samples: dict[str, list[float]] = {name: [] for name in opened}
    end = time.process_time() + seconds
    while time.process_time() < end or len(samples[""]) < 7:
        for name, one in opened.items():
            start = time.process_time()
            one.run(None, feeds)
            samples[name].append(time.process_time() - start)
    micro = {name: float(np.median(times)) * 1e6 for name, times in samples.items()}
    operations = 2 * taps[0] * taps[1] * channels * channels * size * size
    return [
        {
            "kind": "shape", "key": key_of(size, channels, taps, name), "size": size,
            "channels": channels, "algorithm": name or "onnxruntime", "block": block, "us": round(micro[name], 1),
            "gflops": round(operations / micro[name] / 1e3, 1), "ratio": round(micro[""] / micro[name], 3),
            "error": float(np.abs(outputs[name] - truth).max() / np.abs(truth).max()),
            "samples": len(samples[name]),
        }
        for name in opened
    ]  # fmt: skip


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
    for row in kept.of("overhead"):
        other = f"ONNX Runtime's {row['onnxruntime_us']:.2f} µs"
        lines.append(f"\n{row['key']} more in a chain: {row['us']:.2f} µs; {other}")
    if kept.of("model"):
        lines += results.heading("Model", "ms", "×", "95 %", "Error", "ONNX Runtime's", "Kernels")
        lines += [model_line(row) for row in kept.of("model")]
        plain = [row["ratio"] for row in kept.of("model") if row["key"] == row["model"]]
        costs = [row for row in kept.of("model") if "start" in row]
        if costs:
            lines += results.heading("Model", "Start, ×", "Memory, ×")
            lines += [f"| {row['key']} | {row['start']:.2f} | {row['memory']:.2f} |" for row in costs]
        lines += openvino_lines(kept.of("model"))
        if plain:
            lines.append(f"\nGeometric mean of {len(plain)} models: {float(np.exp(np.mean(np.log(plain)))):.3f}")
    return "\n".join(lines)


def openvino_lines(rows: list[dict[str, Any]]) -> list[str]:
    """How many times as fast as OpenVINO the kernels are, and ONNX Runtime is."""
    found = [row for row in rows if row.get("openvino")]
    if not found:
        return []
    lines = [*results.heading("Model", "OpenVINO / kernels", "Blocks", "OpenVINO / ONNX Runtime")]
    for row in found:
        low, high = row["openvino_blocks"][0], row["openvino_blocks"][-1]
        plain = row["onnxruntime_over_openvino"]
        lines.append(f"| {row['key']} | {row['openvino']:.2f} | {low:.2f} to {high:.2f} | {plain:.2f} |")
    return [*lines, f"\nAhead of OpenVINO: {sum(row['openvino'] > 1.0 for row in found)} of {len(found)}"]


def model_line(row: dict[str, Any]) -> str:
    low, high = row["ci95"] or (0.0, 0.0)
    named = ", ".join(f"{count} {name}" for name, count in row["kernels"].items())
    errors = " | ".join("" if row[name] is None else f"{row[name]:.1e}" for name in ("error", "onnxruntime_error"))
    return f"| {row['key']} | {row['ms']:.1f} | {row['ratio']:.2f} | {low:.2f} to {high:.2f} | {errors} | {named} |"


def parsed() -> argparse.Namespace:
    from rlflow import zoo

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--models", nargs="*", default=zoo.names())
    parser.add_argument("--exports", action="store_true", help="all exported models instead")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each race of whole models")
    parser.add_argument("--cost", default="onnxruntime", help="of the optimizer, as are search and budget")
    parser.add_argument("--search", default="mixed")
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--skip-rules", nargs="*", default=[])
    parser.add_argument("--threads", type=int, default=1, help="of the models")
    parser.add_argument("--batch", type=int, help="of the models; their own otherwise")
    parser.add_argument("--instead", nargs=2, action="append", default=[], metavar=("ONE", "OTHER"),
                        help="take the algorithm OTHER where the plan has ONE")  # fmt: skip
    parser.add_argument("--deployed", action="store_true", help="measure the start of sessions and memory too")
    parser.add_argument("--openvino", action="store_true", help="time OpenVINO on the original model too")
    parser.add_argument("--shape-seconds", type=float, default=2.0)
    parser.add_argument("--resume", action="store_true", help="keep the rows that are there")
    parser.add_argument("--again", action="store_true", help="with --resume: but measure these models again")
    parser.add_argument("--output", type=Path, help="the results' file; otherwise that of the instruction set")
    results.add_options(parser)
    return parser.parse_args()


def measure_models(kept: results.Results, options: argparse.Namespace) -> None:
    import models

    instead = tuple((one, other) for one, other in options.instead)
    place = {"threads": options.threads, "batch": options.batch}
    how = models.How(options.seconds, options.cost, options.search, options.budget, **place, instead=instead,
                     skip_rules=tuple(options.skip_rules), deployed=options.deployed,
                     openvino=options.openvino)  # fmt: skip
    for name in models.exports() if options.exports else options.models:
        key = how.key(name)
        if options.again or not kept.have(key):
            row = models.row_of(name, how)
            kept.drop(lambda one, key=key: one.get("key") == key)
            kept.add(row)


def main() -> int:
    options = parsed()
    command = ["reproduce/kernels/run.py", *sys.argv[1:]]
    kept = results.Results(options.output or results_file(), command, resume=options.resume, dirty=options.dirty)
    for size, channels, taps in SHAPES if "shapes" in options.only else ():
        known = kept.have(key_of(size, channels, taps, ""))
        for row in [] if known else of_shape(size, channels, taps, options.shape_seconds):
            kept.add(row)
    for case in alone.cases() if "alone" in options.only else ():
        if not kept.have(case.key):
            kept.add(alone.row_of(case, options.shape_seconds))
    if "overhead" in options.only and not kept.of("overhead"):
        kept.add(deployed.overhead(options.shape_seconds))
    if "models" in options.only:
        measure_models(kept, options)
    print(tables(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
