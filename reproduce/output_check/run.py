"""The output check on wrong models and on right ones: what is caught and by which inputs, and whether it cries wolf.

    python reproduce/output_check/run.py [--walks 160] [--steps 30] [--expansions 30]

Wrong: the pairs of tests/equivalence/wrong_pairs.py. Right: random graphs and rules' own examples after random rewrites
(``--walks`` of them, of ``--steps`` each); small zoo models after the same, after a search by the analytic cost, and as
the clean-up writes them. The rows go to results/latest.jsonl, the tables to standard output.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [os.fspath(folder) for folder in (HERE.parent / "common", ROOT / "tests" / "equivalence")]
sys.path.append(os.fspath(ROOT / "tests" / "conformance"))

import fuzz  # from the folder "tests/conformance"
import results  # from the folder "common"
from wrong_pairs import NEIGHBOURS, WRONG  # from the folder "tests/equivalence"

from rlflow import price, search, zoo
from rlflow.deployment import Inputs, verified
from rlflow.equivalence.runners import runner
from rlflow.errors import RlflowError
from rlflow.frontends import graph_to_model, load_model, save_model
from rlflow.rulesets import load_library
from rlflow.runtime import Worker
from rlflow.search import Budget, Problem

#: Zoo models with sizes at which a run takes milliseconds.
SMALL: dict[str, dict[str, int]] = {
    "squeezenet1.1": {"image": 64, "width": 25, "classes": 20},
    "resnet-18": {"image": 64, "width": 25, "classes": 20},
    "resnet-50": {"image": 64, "width": 25, "classes": 20},
    "inception-v3": {"image": 128, "width": 25, "classes": 20},
    "nasnet-a": {"image": 64, "cells": 1, "filters": 8, "stem": 8, "classes": 20},
    "mobilenet-v2": {"image": 64, "width": 25, "classes": 20},
    "shufflenet-v2": {"image": 64, "width": 50, "classes": 20},
    "repvgg-a0": {"image": 64, "width": 25, "classes": 20},
    "unet": {"image": 64, "channels": 4},
    "nasrnn": {"hidden": 32},
    "bert-base": {"layers": 2, "hidden": 64, "heads": 4, "feed_forward": 128, "vocab": 500},
    "vit-base": {"image": 64, "layers": 2, "hidden": 64, "heads": 4, "feed_forward": 128, "classes": 20},
    "llama-decoder-step": {"hidden": 64, "heads": 4, "kv_heads": 2, "feed_forward": 128, "vocab": 100},
    "transducer": {"audio_layers": 2, "label_layers": 1, "hidden": 32, "heads": 4, "feed_forward": 64},
    "dalle-decoder": {"layers": 2, "hidden": 64, "heads": 4, "feed_forward": 128, "vocab": 300},
    "taso/batched_resnet": {"width": 25},
    "taso/nasrnn": {"hidden": 32},
}


def judged(worker: Worker, original: bytes, other: bytes, dims: dict[str, int]) -> dict[str, Any]:
    """One comparison, as ``rlflow.verify`` makes it."""
    start = time.perf_counter()
    inputs = Inputs.of(worker, original, load_model(original).graph, dict(dims), None, 0)
    found = verified(runner(worker, worker), inputs, original, other, 0)
    return {
        "passed": found.passed,
        "seconds": round(time.perf_counter() - start, 2),
        "inputs": found.inputs,
        "reason": found.failure(),
    }


def walks(worker: Worker, count: int, steps: int) -> Iterator[tuple[str, bytes, bytes]]:
    """Random graphs before and after random rewrites from the whole library."""
    fuzzer = fuzz.Fuzzer(worker, load_library(None), steps)
    for seed in range(count):
        graph, constants = fuzzer.start(seed)
        *_, last = fuzz.sequence(graph, seed, fuzzer.rules, steps)
        before, after = (graph_to_model(one, constants).SerializeToString() for one in (graph, last.graph))
        yield f"walk {seed}", before, after


def rewritten(worker: Worker, steps: int, expansions: int) -> Iterator[tuple[str, bytes, bytes]]:
    """Small zoo models: cleaned up, after random rewrites, and as a search by the analytic cost leaves them."""
    library = load_library(None)
    rules = fuzz.Fuzzer(worker, library, steps).rules
    for name, sizes in SMALL.items():
        source = zoo.build(name, seed=0, **sizes).SerializeToString()
        imported = load_model(source)
        *_, last = fuzz.sequence(imported.graph, 1, rules, steps)
        prices = price.make("analytic", threads=1, dims={})
        best = search.solve(Problem(imported.graph, library, prices, Budget.parse(f"{expansions}x"), seed=0)).graph
        for kind, graph in (("clean-up", imported.graph), ("walk", last.graph), ("search", best)):
            yield f"{kind} of {name}", source, save_model(imported, graph).SerializeToString()


def line(row: dict[str, Any]) -> str:
    verdict = "not caught" if row["passed"] else "caught"
    return f"| {row['key']} | {verdict} | {row['reason'] or ''} | {row['seconds']} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walks", type=int, default=160, help="random graphs")
    parser.add_argument("--steps", type=int, default=30, help="random rewrites of each")
    parser.add_argument("--expansions", type=int, default=30, help="of a search by the analytic cost")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "latest.jsonl")
    results.add_options(parser)
    options = parser.parse_args()
    kept = results.Results(options.out, ["python", "reproduce/output_check/run.py"], dirty=options.dirty)
    with Worker() as worker:
        for pair in (*WRONG, *NEIGHBOURS):
            kind = "wrong" if pair in WRONG else "neighbour"
            found = judged(worker, pair.original, pair.wrong, pair.dims)
            kept.extend([{"kind": kind, "key": pair.name, **found}])
        pairs = [walks(worker, options.walks, options.steps), rewritten(worker, options.steps, options.expansions)]
        for name, before, after in (pair for source in pairs for pair in source):
            try:
                found = judged(worker, before, after, {})
            except RlflowError as error:  # the original does not run
                print(f"{name}: {error}", file=sys.stderr)
                continue
            kept.extend([{"kind": "right", "key": name, **found}])
    wrong, right = kept.of("wrong"), kept.of("right")
    print("| wrong | verdict | by what | seconds |\n|---|---|---|---|")
    print("\n".join(map(line, [*wrong, *kept.of("neighbour")])))
    alarms = [row for row in right if not row["passed"]]
    print(f"\n{sum(not row['passed'] for row in wrong)} of {len(wrong)} wrong pairs caught; ", end="")
    print(f"{len(alarms)} false alarms in {len(right)} right pairs.")
    print("\n".join(f"{row['key']}: {row['reason']}" for row in alarms))
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
