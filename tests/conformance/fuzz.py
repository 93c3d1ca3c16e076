"""Random graphs, random sequences of rewrites from the whole library, outputs compared in ONNX Runtime.

    python tests/conformance/fuzz.py [--seeds 0:2000] [--jobs 2] [--steps 30] [--every 10] [--log build/fuzz.jsonl]

Every finished sequence is a line of the log; a second run leaves out the seeds that are there with the same library.
Exit status 1 where a sequence failed; its line holds the step, the rule and the graph before it, ready for a test.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlflow.equivalence.outputs import compare, noise_floor
from rlflow.errors import RlflowError
from rlflow.frontends import graph_to_model
from rlflow.frontends.constants import ConstantStore, numpy_dtype
from rlflow.graph import Graph
from rlflow.rewrite import RuleLibrary, RuleSet, State, compiled, load_rules
from rlflow.runtime import Worker
from rlflow.synthesis.floats import filled
from rlflow.testing import random_graph

STEPS = 30
#: Beyond so many nodes only rewrites that do not add to them are taken.
_LARGE = 120
#: A random graph is drawn again, so many times at most, until so many rewrites are open in it.
_ATTEMPTS, _OPEN = 20, 5
#: So many examples stand side by side; the stride is a prime, so that neighbours are of different families.
_EXAMPLES, _STRIDE = 6, 97
#: What a graph is made of, in turn: everything, and the operators between which most rules hold.
_POOLS: tuple[tuple[str, ...] | None, ...] = (
    None,
    ("MatMul", "Gemm", "Add", "Mul", "Sub", "Transpose", "Reshape", "Split", "Concat", "Slice", "Gather", "ReduceMean",
     "Softmax", "Relu", "LayerNormalization", "Unsqueeze", "Squeeze"),
    ("Conv", "BatchNormalization", "Relu", "Add", "Mul", "MaxPool", "AveragePool", "GlobalAveragePool", "Concat",
     "Split", "Slice", "Pad", "Sigmoid"),
    ("Add", "Mul", "Sub", "Max", "Min", "Sum", "Relu", "Neg", "Abs", "Tanh", "Sigmoid", "ReduceSum", "ReduceMean",
     "ReduceMax", "Transpose", "Expand", "Tile", "Concat", "Slice", "Split"),
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One rewrite, and the graph after it."""

    rule: str
    key: list[int]
    graph: Any


@dataclass(frozen=True)
class Outcome:
    """One sequence: the rules that were applied in order; ``failure`` is the sentence, ``None`` where all agreed."""

    seed: int
    rules: list[str]
    failure: str | None = None
    step: int | None = None
    before: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if value is not None}


def first_graphs(seed: int, library: RuleLibrary, rules: RuleSet) -> list[Graph]:
    """What the sequence of this seed starts from, to stand side by side: every other time a random graph in which
    something may be rewritten, else some rules' own examples, so that the rules of rare operators have their turn.
    """
    rng = np.random.default_rng([seed, 1])
    if seed % 2:
        examples = [text for rule in library.values() for text in rule.fires]
        first = seed // 2 * _EXAMPLES * _STRIDE
        return [Graph.parse(examples[(first + k * _STRIDE) % len(examples)]) for k in range(_EXAMPLES)]
    pool = _POOLS[seed // 2 % len(_POOLS)]
    for attempt in range(_ATTEMPTS):
        graph = random_graph(_ATTEMPTS * seed + attempt, int(rng.integers(8, 24)), ops=pool)
        if len(State(graph, rules).moves()) >= _OPEN:
            break
    return [graph]


def joined(graphs: Sequence[Graph]) -> Graph:
    """Several graphs as one."""
    lines: list[str] = []
    results: list[str] = []
    for number, graph in enumerate(graphs):
        for line in re.sub(r"\b([xv]\d+)\b", rf"\1of{number}", graph.text()).splitlines():
            (results if line.startswith("return ") else lines).append(line.removeprefix("return "))
    return Graph.parse("\n".join([*lines, "return " + ", ".join(results)]))


def sequence(graph: Graph, seed: int, rules: RuleSet, steps: int = STEPS) -> Iterator[Step]:
    """Random rewrites: first a rule, all that fire alike, then one of its matches. The first step is the start."""
    rng = np.random.default_rng([seed, 2])
    state = State(graph, rules)
    yield Step("", [], graph)
    for _ in range(steps):
        moves = state.moves()
        allowed = np.arange(len(moves))
        if state.graph.num_nodes > _LARGE:
            allowed = np.flatnonzero(np.asarray(moves.nodes_added) <= np.asarray(moves.nodes_removed))
        if not len(allowed):
            return
        fired = np.asarray(moves.rule)[allowed]
        i = int(rng.choice(allowed[fired == rng.choice(np.unique(fired))]))
        key, rule = state.key(i), rules.names[int(moves.rule[i])]
        state = state.open(i)
        yield Step(rule, key, state.graph)


class Fuzzer:
    """Runs sequences; ``worker`` holds the runtime."""

    def __init__(self, worker: Worker, library: RuleLibrary, steps: int = STEPS, every: int = STEPS) -> None:
        self.worker, self.library, self.rules = worker, library, compiled(library)
        self.steps, self.every = steps, every

    def check(self, seed: int) -> Outcome:
        """Run one sequence. Every ``every`` steps and at the end the outputs are compared; where they differ, the
        first step that made the difference is looked for.
        """
        done: list[Step] = []
        start, self.constants = self.start(seed)
        try:
            for step in sequence(start, seed, self.rules, self.steps):
                done.append(step)
        except RlflowError as error:
            return self._failed(seed, done, len(done), f"applying a move failed: {error}")
        feeds = _feeds(start, seed)
        reference = self._run(start, feeds)
        noise = noise_floor([reference], [[self._run(start, _moved(feeds))]])
        for last in sorted({*range(self.every, len(done), self.every), len(done) - 1} - {0}):
            if self._differs(done[last].graph, feeds, reference, noise) is None:
                continue
            for number in range(1, last + 1):
                why = self._differs(done[number].graph, feeds, reference, noise)
                if why is not None:
                    return self._failed(seed, done, number, why)
        return Outcome(seed, [step.rule for step in done[1:]])

    def start(self, seed: int) -> tuple[Graph, ConstantStore]:
        """The first graph and its constants, without what the runtime refuses or gives no finite result for."""
        parts = [part for part in first_graphs(seed, self.library, self.rules) if self._runs(part, seed)]
        return filled(joined(parts) if parts else random_graph(seed, 12, ops=_POOLS[1]))

    def _runs(self, graph: Graph, seed: int) -> bool:
        whole, self.constants = filled(graph)
        try:
            outputs = self._run(whole, _feeds(whole, seed))
        except RlflowError:
            return False
        return all(np.isfinite(array).all() for array in outputs.values() if np.asarray(array).dtype.kind == "f")

    def _failed(self, seed: int, done: Sequence[Step], number: int, why: str) -> Outcome:
        """``number``: of the step that failed, counted from 1."""
        rule = f"rule {done[number].rule} at {done[number].key}: " if number < len(done) else ""
        return Outcome(seed, [step.rule for step in done[1:]], rule + why, number, done[number - 1].graph.text())

    def _run(self, graph: Any, feeds: dict[str, np.ndarray]) -> dict[str, Any]:
        handle = self.worker.load(graph_to_model(graph, self.constants).SerializeToString(), level="disable")
        try:
            return self.worker.run(handle, feeds)
        finally:
            self.worker.unload(handle)

    def _differs(self, graph: Any, feeds: dict[str, np.ndarray], reference: Any, noise: Any) -> str | None:
        try:
            checks = compare(reference, self._run(graph, feeds), noise)
        except RlflowError as error:
            return str(error)
        return next((check.detail for check in checks if not check.passed), None)


def _feeds(graph: Any, seed: int) -> dict[str, np.ndarray]:
    """Random floats; integers are zero, because they may be indices."""
    rng = np.random.default_rng([seed, 3])
    feeds = {}
    for n in graph.inputs():
        value = graph.node_outputs(n)[0]
        shape, kind = graph.shape(value), numpy_dtype(graph.dtype(value))
        floats = np.issubdtype(kind, np.floating)
        feeds[graph.input_name(n)] = np.asarray(rng.standard_normal(shape) if floats else np.zeros(shape), kind)
    return feeds


def _moved(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs one unit in the last place further up."""

    def moved(array: np.ndarray) -> np.ndarray:
        return np.asarray(np.nextafter(array, array.dtype.type(np.inf))) if array.dtype.kind == "f" else array

    return {name: moved(array) for name, array in feeds.items()}


# --- the command ------------------------------------------------------------------------------------------------------


def run_seeds(seeds: Sequence[int], steps: int, every: int) -> list[dict[str, Any]]:
    """The outcomes of some seeds, in a process of a pool."""
    with Worker() as worker:
        fuzzer = Fuzzer(worker, load_rules(), steps, every)
        return [fuzzer.check(seed).to_dict() for seed in seeds]


def finished(log: Path, library: str) -> dict[int, dict[str, Any]]:
    """The lines of a log that was written with this library, by seed."""
    lines = log.read_text().splitlines() if log.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("}")]
    return {record["seed"]: record for record in records if record.pop("library", None) == library}


def chunks(seeds: Sequence[int], size: int = 25) -> Iterable[Sequence[int]]:
    return (seeds[at : at + size] for at in range(0, len(seeds), size))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:2000", metavar="FROM:TO")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--every", type=int, default=10, help="compare outputs after so many steps, and at the end")
    parser.add_argument("--log", type=Path, default=Path("build/fuzz.jsonl"))
    options = parser.parse_args()
    low, high = map(int, options.seeds.split(":"))
    library = compiled(load_rules()).digest
    done = finished(options.log, library)
    waiting = [seed for seed in range(low, high) if seed not in done]
    options.log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with ProcessPoolExecutor(options.jobs) as pool, options.log.open("a") as log:
        jobs = [pool.submit(run_seeds, part, options.steps, options.every) for part in chunks(waiting)]
        try:
            for job in jobs:
                for record in job.result():
                    done[record["seed"]] = record
                    log.write(json.dumps({**record, "library": library}) + "\n")
                log.flush()
                print(
                    f"\r{len(done)} of {high - low} sequences, {time.monotonic() - started:.0f} s", end="", flush=True
                )
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            print("\nstopped; the same command goes on from here")
    return summary([record for seed, record in done.items() if low <= seed < high], high - low)


def summary(records: Sequence[dict[str, Any]], wanted: int) -> int:
    """Print what was done; the exit status."""
    rules = Counter(rule for record in records for rule in record["rules"])
    failures = [record for record in records if "failure" in record]
    steps = sum(rules.values())
    print(f"\n{len(records)} sequences, {steps} rewrites by {len(rules)} rules, {len(failures)} failures")
    for record in failures:
        print(f"seed {record['seed']}, step {record['step']}: {record['failure']}")
    return 1 if failures or len(records) < wanted else 0


if __name__ == "__main__":
    sys.exit(main())
