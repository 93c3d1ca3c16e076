"""The execution provider beside the custom operators: one model in three sessions of this process.

    python reproduce/kernels/as_provider.py [--models resnet-18 ...] [--budget 60s] [--seconds 30] [--resume] [--dirty]

`rlflow optimize --kernels` writes the model. Then ONNX Runtime as it is, `rlflow.kernels.session`, and a session with
`rlflow.kernels.add_provider` run in turn, each first as often as the others: processor time of one thread. A ratio is
the median of those of the turns.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import results

MODELS = ("resnet-18", "squeezenet1.1", "unet", "repvgg-a0", "llama-decoder-step")
#: Runs that are not counted, and runs between two looks at the clock.
_WARM, _RUNS = 3, 2


def options() -> ort.SessionOptions:
    made = ort.SessionOptions()
    made.intra_op_num_threads = made.inter_op_num_threads = 1
    return made


def sessions(path: str) -> dict[str, ort.InferenceSession]:
    import rlflow.kernels

    with_provider = options()
    if not rlflow.kernels.add_provider(with_provider, path):
        raise SystemExit(f"{path} has no plan of kernels that can be used here.")
    return {
        "onnxruntime": ort.InferenceSession(path, options(), providers=["CPUExecutionProvider"]),
        "operators": rlflow.kernels.session(path, options()),
        "provider": ort.InferenceSession(path, with_provider),
    }


def times(opened: dict[str, ort.InferenceSession], seconds: float) -> dict[str, np.ndarray]:
    """Processor seconds of a run in each turn."""
    rng = np.random.default_rng(0)
    feeds = {
        one.name: rng.standard_normal(one.shape).astype(np.float32) if "float" in one.type else np.zeros(one.shape, int)
        for one in opened["onnxruntime"].get_inputs()
    }
    for session in opened.values():
        for _ in range(_WARM):
            session.run(None, feeds)
    kept: dict[str, list[float]] = {name: [] for name in opened}
    names, end = list(opened), time.monotonic() + seconds
    while time.monotonic() < end:
        first = len(kept["provider"]) % len(names)
        for name in [*names[first:], *names[:first]]:
            began = time.process_time()
            for _ in range(_RUNS):
                opened[name].run(None, feeds)
            kept[name].append((time.process_time() - began) / _RUNS)
    return {name: np.array(found) for name, found in kept.items()}


def row_of(model: str, budget: str, seconds: float) -> dict[str, Any]:
    from rlflow import zoo

    with tempfile.TemporaryDirectory() as folder:
        original, written = os.path.join(folder, "model.onnx"), os.path.join(folder, "out.onnx")
        onnx.save(zoo.build(model), original)
        command = [sys.executable, "-m", "rlflow", "optimize", original, "-o", written, "--kernels", "--budget", budget]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found = times(sessions(written), seconds)
    return {
        "kind": "provider", "key": model, "budget": budget, "samples": len(found["provider"]),
        "onnxruntime_ms": round(float(np.median(found["onnxruntime"])) * 1e3, 3),
        "operators": round(float(np.median(found["onnxruntime"] / found["operators"])), 3),
        "provider": round(float(np.median(found["onnxruntime"] / found["provider"])), 3),
        "provider_over_operators": round(float(np.median(found["provider"] / found["operators"])), 4),
    }  # fmt: skip


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "kernels-provider.jsonl")
    parser.add_argument("--resume", action="store_true", help="keep the rows that are there")
    results.add_options(parser)
    return parser.parse_args(arguments)


def main() -> int:
    asked = parsed()
    command = ["reproduce/kernels/as_provider.py", *sys.argv[1:]]
    kept = results.Results(asked.output, command, resume=asked.resume, dirty=asked.dirty)
    for model in (model for model in asked.models if not kept.have(model)):
        kept.add(row_of(model, asked.budget, asked.seconds))
    print(kept.about())
    return 0


if __name__ == "__main__":
    sys.exit(main())
