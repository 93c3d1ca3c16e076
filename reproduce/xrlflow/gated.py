"""What the searches found, by the clock: every distinct graph of a model once, interleaved with the original.

The gate's sampler and statistics (:mod:`rlflow.race.gate`): a new process and new sessions for every block, and the
block is the unit of evidence. Outputs are compared with the original's too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from rlflow import search, zoo
from rlflow.deployment import Inputs, open_worker, source_of, verified
from rlflow.equivalence import calibrate
from rlflow.equivalence.runners import runner
from rlflow.errors import GraphError, UsageError
from rlflow.frontends import load_model, save_model
from rlflow.price.sampler import WorkerSampler
from rlflow.price.timing import speedup
from rlflow.search import TraceStep

BLOCKS = 10


def winners(rows: Any, model: str, seconds: float, labels: Sequence[str] | None = None) -> None:
    """A row for every graph that the model's searches at equal expansions ended with and that was not timed yet;
    ``seconds`` for each of them, all blocks together. ``labels``: of these searches only.
    """
    found = {
        row["digest"]: row
        for row in reversed(rows.rows)
        if row["kind"] == "search" and row["model"] == model and row["roofline"] == "cpu" and row["gain"] > 0
        and row["budget"].endswith("x") and not row["label"].startswith("ablation")
        and (not labels or row["label"] in labels)
    }  # fmt: skip
    left = {digest: row for digest, row in found.items() if not rows.have(f"gate/{model}/{digest}")}
    if not left:
        return
    name, _, query = model.partition("?")
    options = {pair.split("=")[0]: int(pair.split("=")[1]) for pair in query.split("&") if pair}
    proto = zoo.build(name, **options)
    begun = time.monotonic()
    for row in timed(proto, left, seconds * (1 + len(left))):
        rows.add({"kind": "gate", "key": f"gate/{model}/{row['digest']}", "model": model,
                  "seconds": (time.monotonic() - begun) / len(left), **row})  # fmt: skip


def timed(proto: Any, found: dict[str, dict[str, Any]], seconds: float) -> Iterator[dict[str, Any]]:
    imported = load_model(proto)
    sources: dict[str, bytes] = {}
    for digest, row in found.items():
        graph = again(imported.graph, row)
        if graph is not None:
            sources[digest] = bytes(save_model(imported, graph).SerializeToString(deterministic=True))
    original = source_of(imported, proto)
    with ExitStack() as stack:
        worker = stack.enter_context(open_worker(1))
        inputs = Inputs.of(worker, original, imported.graph, {}, None, 0)
        run = runner(worker, worker)
        noise = calibrate(run, original, inputs.feeds)
        passed = {digest: verified(run, inputs, original, one, 0, noise) for digest, one in sources.items()}
        sampler = stack.enter_context(WorkerSampler(worker, {"baseline": original, **sources}, inputs.feeds[0]))
        dropped = sampler.screen("baseline")
        names = [one for one in sampler.names if one not in dropped]
        blocks = [
            np.median(sampler.block(names, seed, seconds / BLOCKS).by(sampler.clock), axis=0) for seed in range(BLOCKS)
        ]
    log_ms = dict(zip(names, np.log(np.array(blocks)).T, strict=True))
    for digest in sources:
        failure = dropped.get(digest) or (None if passed[digest].passed else str(passed[digest].failure))
        row = {"digest": digest, "cost_gain": found[digest]["gain"], "clock": sampler.clock, "failure": failure}
        if digest in log_ms:
            told = speedup(log_ms["baseline"] - log_ms[digest])
            ends = [end if math.isfinite(end) else None for end in (told.low, told.high)]
            row |= {"speedup": told.value, "ci95": ends, "p_value": told.p_value}
            row |= {"original_ms": float(np.exp(np.median(log_ms["baseline"])))}
        yield row


def again(graph: Any, row: dict[str, Any]) -> Any:
    """The graph that a row's search found, with the weights that searching did without: by its trace, or, where the
    strategy keeps none, by the same search again.
    """
    from rooflines import spec

    from rlflow import price
    from rlflow.search import Problem

    ruleset = spec(row["model"], row["roofline"]).load().ruleset
    if row["trace"] is None:
        problem = Problem(graph, ruleset, price.make("analytic"), row["budget"], seed=row["seed"])
        return search.solve(problem, row["label"]).graph
    try:
        return search.replay(graph, ruleset, [TraceStep(rule, tuple(match)) for rule, match in row["trace"]])
    except (GraphError, UsageError) as error:
        print(f"{row['key']}: the trace does not replay with weights: {error}")
        return None
