"""Records tables: the time of every program of our own kernels, for the shapes that residual and dense networks have.

    python reproduce/harl/record.py [--shapes 56x64 28x128 ...] [--passes 4] [--output rlflow/tuner/winograd.json]

A table's model is a chain of convolutions of one shape, one for each program that is timed in a session, with weights
that the near caches cannot hold together. Every pass gives the programs other places in the chain. A time is the least
of all runs of all passes, so that a neighbour's work disturbs it little. With ``--resume`` passes are added to the
table that is there: its times may only fall. ``--halves`` keeps the times of even and odd passes apart, which says how
far a table can be relied on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from rlflow.files import write_atomically
from rlflow.kernels.algorithms import ALGORITHMS
from rlflow.tuner import KernelEngine, TensorProgram, TunedSubgraph
from rlflow.tuner.kernel_engine import site_seconds
from rlflow.tuner.space_files import plain

SHAPES = ("56x64", "28x128", "14x256", "7x512", "112x64", "56x128", "28x256", "14x512")
OUTPUT = Path(__file__).resolve().parents[2] / "rlflow" / "tuner" / "winograd.json"
#: Nodes of a chain, half of a space; bytes that all its weights take at least; seconds of a session's runs.
CHAIN, WEIGHT_BYTES, RUN_SECONDS = 97, 16 << 20, 1.5
LEAST_RUNS, MOST_RUNS = 3, 20


def chain(size: int, channels: int, length: int) -> bytes:
    """A model of ``length`` 3×3 convolutions with Relu."""
    rng = np.random.default_rng(0)
    distinct = min(length, max(3, -(-WEIGHT_BYTES // (36 * channels * channels))))
    scale = np.sqrt(2.0 / (9 * channels))  # keeps the size of what flows through Relu
    weights = [
        numpy_helper.from_array((rng.standard_normal((channels, channels, 3, 3)) * scale).astype(np.float32), f"w{at}")
        for at in range(distinct)
    ]
    nodes = []
    for at in range(length):
        inputs = [f"x{at}", f"w{at % distinct}"]
        nodes.append(helper.make_node("Conv", inputs, [f"c{at}"], name=f"conv{at}", pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{at}"], [f"x{at + 1}"], name=f"relu{at}"))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, size, size])
        for name in ("x0", f"x{length}")
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model.SerializeToString()


class Recorder:
    """Times all programs of a shape, each at a place of its own."""

    def __init__(self, shape: str) -> None:
        size, channels = map(int, shape.split("x"))
        feeds = {"x0": np.random.default_rng(1).standard_normal((1, channels, size, size)).astype(np.float32)}
        self.engine = KernelEngine.of(chain(size, channels, CHAIN), feeds, threads=1)
        (self.sites,) = self.engine.groups
        name = f"3x3, {size}x{size} pixels, {channels} channels"
        flops = 2.0 * 9 * (channels * size) ** 2
        self.subgraph: TunedSubgraph = replace(self.engine.subgraphs[0], name=name, flops=flops)
        self.programs = list(self.subgraph.space.programs())
        once = sum(one.us for one in self.engine.times({}, 1).values()) * 1e-6
        self.runs = int(min(max(RUN_SECONDS / max(once, 1e-6), LEAST_RUNS), MOST_RUNS))

    def one_pass(self, number: int) -> np.ndarray:
        """[programs] Seconds."""
        order = np.random.default_rng(number).permutation(len(self.programs))
        found = np.zeros(len(order))
        for begin in range(0, len(order), CHAIN):
            some = order[begin : begin + CHAIN]
            found[some] = self._session([self.programs[at] for at in some.tolist()])
        return found

    def _session(self, programs: Sequence[TensorProgram]) -> list[float]:
        made = {}
        for site, program in zip(self.sites, programs, strict=False):
            chosen = self.engine.attributes(0, program)
            if chosen is not None:
                made[site.name] = ALGORITHMS[chosen[0]].attributes(chosen[1])
        times = self.engine.times(made, self.runs)
        return [site_seconds(site, times) for site, _ in zip(self.sites, programs, strict=False)]


def recorded(shape: str, first: int, passes: int) -> tuple[dict, list[np.ndarray], str, float]:
    """A table of ``passes`` passes, the times of even and odd ones, the place, and processor seconds of a trial."""
    recorder = Recorder(shape)
    halves = [np.full(len(recorder.programs), np.inf) for _ in range(2)]
    for number in range(first, first + passes):
        np.minimum(halves[number % 2], recorder.one_pass(number), out=halves[number % 2])
    spent = recorder.engine.cpu_seconds / passes / len(recorder.programs)
    place = recorder.engine.place
    recorder.engine.close()
    table = {"subgraph": plain(recorder.subgraph), "nanoseconds": [round(one * 1e9) for one in np.minimum(*halves)]}
    return table, halves, place, spent


def agreement(one: np.ndarray, other: np.ndarray) -> str:
    """How alike two recordings of a shape are."""
    ranks = [np.argsort(np.argsort(times)) for times in (one, other)]
    ratio = np.abs(np.log(one / other))
    best = int(np.argmin(one))
    return (
        f"rank correlation {np.corrcoef(*ranks)[0, 1]:.3f}, median difference {100 * np.median(ratio):.1f} %, the best "
        f"of one is {other[best] / other.min():.3f} of the best of the other"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=SHAPES, metavar="SIZExCHANNELS")
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--first", type=int, default=0, metavar="PASS", help="the number of the first pass")
    parser.add_argument("--resume", action="store_true", help="add passes to the table that is there")
    parser.add_argument("--halves", type=Path, metavar="FILE", help="keep the times of even and odd passes here")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    whole = json.loads(options.output.read_text(encoding="utf-8")) if options.resume else None
    kept = json.loads(options.halves.read_text(encoding="utf-8")) if options.halves and options.halves.exists() else {}
    for shape in options.shapes:
        table, halves, place, spent = recorded(shape, options.first, options.passes)
        if whole is None:
            whole = {"form": "rlflow tuner table 2", "place": place, "trial_seconds": round(spent, 6), "tables": []}
        if whole["place"] != place:
            raise SystemExit(f"The table is of {whole['place']}; this is {place}.")
        old = next((one for one in whole["tables"] if one["subgraph"]["name"] == table["subgraph"]["name"]), None)
        if old is not None:
            if json.loads(json.dumps(table["subgraph"])) != old["subgraph"]:
                raise SystemExit(f"The table has another space for {shape}: record it anew, without --resume.")
            old["nanoseconds"] = np.minimum(old["nanoseconds"], table["nanoseconds"]).tolist()
        else:
            whole["tables"].append(table)
        kept[shape] = np.minimum(kept.get(shape, halves), halves).tolist()
        print(f"{shape}: {spent:.3f} s a trial; {agreement(*map(np.array, kept[shape]))}", file=sys.stderr, flush=True)
        write_atomically(options.output, json.dumps(whole) + "\n")
        if options.halves:
            options.halves.write_text(json.dumps(kept) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
