"""Records tables: the time of every program of our own kernels, for the shapes that residual and dense networks have.

    python reproduce/harl/record.py [--shapes 56x64 28x128 ...] [--output tests/data/tuner/winograd.json]

A table's model is a chain of three convolutions of one shape, with weights of their own. The profiler's clock is that
of the wall: on a busy machine the times of a table have errors, and its optimum is in part luck.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from rlflow.tuner import KernelEngine, record

SHAPES = ("56x64", "28x128", "14x256", "7x512", "112x64", "56x128", "28x256", "14x512")
OUTPUT = Path(__file__).resolve().parents[2] / "tests" / "data" / "tuner" / "winograd.json"
CHAIN = 3


def chain(size: int, channels: int) -> bytes:
    """A model of :data:`CHAIN` 3×3 convolutions with Relu."""
    rng = np.random.default_rng(0)
    nodes, weights = [], []
    for at in range(CHAIN):
        values = rng.standard_normal((channels, channels, 3, 3)) / np.sqrt(9 * channels)
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"w{at}"))
        nodes.append(helper.make_node("Conv", [f"x{at}", f"w{at}"], [f"c{at}"], name=f"conv{at}", pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{at}"], [f"x{at + 1}"], name=f"relu{at}"))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, size, size])
        for name in ("x0", f"x{CHAIN}")
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model.SerializeToString()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=SHAPES, metavar="SIZExCHANNELS")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    whole = None
    for shape in options.shapes:
        size, channels = map(int, shape.split("x"))
        feeds = {"x0": np.random.default_rng(1).standard_normal((1, channels, size, size)).astype(np.float32)}
        engine = KernelEngine.of(chain(size, channels), feeds, threads=1)
        with tempfile.TemporaryDirectory() as folder:
            record(engine, Path(folder) / "table.json")
            table = json.loads((Path(folder) / "table.json").read_text(encoding="utf-8"))
        engine.close()
        for number, one in enumerate(table["tables"], 1):
            again = f" ({number})" if number > 1 else ""
            one["subgraph"]["name"] = f"3x3, {size}x{size} pixels, {channels} channels{again}"
        print(shape, f"{table['trial_seconds']:.2f} s a trial", file=sys.stderr, flush=True)
        if whole is None:
            whole = table
        else:
            whole["tables"] += table["tables"]
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(whole) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
