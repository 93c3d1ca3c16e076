"""GO's policy beside the searches: graphs of a family that it was not trained on, its parts left out, and its size."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rlflow.placement import PLACERS, Devices, PlacementTask, lower_bound
from rlflow.placement.level_search import AnnealedLevels
from rlflow.placement.ordering import ORDERS
from rlflow.placement.sketches import FAMILIES, drawn_sketch

Row = dict[str, Any]
#: Seeds that neither a training's graphs nor those that it is judged by are drawn with.
TEST_SEED = 1000
#: Decisions of the policy that are tried, in every one of its columns.
TRIED = 64
STEPS = 50
WITHOUT = {"whole": {}, "no GNN": {"gnn": False}, "no attention": {"attention": False}, "no gate": {"gate": False},
           "T = 1": {"iterations": 1}, "tasks apart": {"together": False}}  # fmt: skip


def usual(task: Any, name: str) -> dict[str, float]:
    """What needs no search, by name."""
    if name == "placement":
        made = {one: PLACERS.make(one).decide(task, np.random.default_rng(0)) for one in
                ("single", "contiguous", "critical-path", "etf", "heft", "min-cut")}  # fmt: skip
        return {one: float(task.scores(row[None])[0]) for one, row in made.items()}
    if name == "ordering":
        return {one: task.peak(make(task)) for one, make in ORDERS.items()}
    rows = np.stack([np.zeros(task.nodes, np.int32), np.ones(task.nodes, np.int32)])
    return dict(zip(("none", "all"), task.scores(rows).tolist(), strict=True))


def searched(task: Any, name: str, evaluations: int, seed: int) -> dict[str, float]:
    """What equal searches find: by annealing, by drawing."""
    rng = np.random.default_rng(seed)
    drawn = PLACERS.make("random", evaluations=evaluations).decide(task, rng)
    found = {"random": float(task.scores(drawn[None])[0])}
    if name == "placement":
        row = PLACERS.make("annealing", evaluations=evaluations).decide(task, rng)
        found["annealing"] = float(task.scores(row[None])[0])
    else:
        found["annealing"] = AnnealedLevels(evaluations).decide(task, rng)[0]
    return found


def bound_of(task: Any) -> float:
    return lower_bound(task) if isinstance(task, PlacementTask) else task.bound()


def learnt(families: list[str], config: Any, updates: int, seed: int, held_out: str) -> Any:
    from rlflow.agents.go.teaching import GoTraining

    return GoTraining(families, config, held_out=[held_out], seed=seed).train(updates, judge_every=10**9).policy()


def tests_of(family: str, config: Any) -> Any:
    from rlflow.agents.go.lessons import drawn_lessons

    return drawn_lessons([family], config, TEST_SEED, count=2)[1]  # of four devices


def left_out(families: list[str], updates: int, evaluations: int, seeds: int) -> Iterator[Row]:
    """A row for each family that is left out of the training, each task and each seed."""
    from rlflow.agents.go.config import TASKS, GoConfig
    from rlflow.agents.go.network import make_go
    from rlflow.agents.go.surrogate import best_of
    from rlflow.agents.go.teaching import fine_tuned

    config = GoConfig()
    for family in families:
        lesson = tests_of(family, config)
        known = {}
        for number, task in lesson.asked():
            known[number] = usual(task, TASKS[number]) | searched(task, TASKS[number], evaluations, 0)
        for seed in range(seeds):
            others = [one for one in FAMILIES if one != family]
            policy, fresh = learnt(others, config, updates, seed, family), make_go(config, 100 + seed)
            found = {}
            for name, start, steps in (("untrained", fresh, 0), ("zero-shot", policy, 0),
                                       ("fine-tuned", policy, STEPS), ("from scratch", fresh, STEPS)):  # fmt: skip
                again = tests_of(family, config)  # nothing is remembered from the others
                rng = np.random.default_rng(seed)
                made = fine_tuned(start, again, steps, rng) if steps else start
                found[name] = [one[0] for one in best_of(made, again, TRIED, rng)]
                if steps:
                    seen = [(value**2) * ref for value, ref in zip(again.best, again.reference, strict=True)]
                    found[name] = [min(pair) for pair in zip(found[name], seen, strict=True)]
            for number, task in lesson.asked():
                yield {
                    "kind": "policy", "key": f"policy {family} {TASKS[number]} {seed}", "family": family,
                    "task": TASKS[number], "seed": seed, "nodes": task.nodes, "updates": updates,
                    "evaluations": evaluations, "evidence": task.evidence, "bound": bound_of(task),
                    **{name: values[number] for name, values in found.items()}, "others": known[number],
                }  # fmt: skip


def without(families: list[str], updates: int, seed: int = 0) -> Iterator[Row]:
    """A row for each part that is left out: trained on all families, judged on other graphs of them."""
    from rlflow.agents.go.config import GoConfig
    from rlflow.agents.go.lessons import drawn_lessons
    from rlflow.agents.go.teaching import GoTraining, score_of

    for name, changes in WITHOUT.items():
        config = dataclasses.replace(GoConfig(), **changes)
        policy = GoTraining(families, config, seed=seed).train(updates, judge_every=10**9).policy()
        lessons = drawn_lessons(families, config, TEST_SEED, count=2)
        yield {
            "kind": "without", "key": f"without {name}", "part": name, "updates": updates, "seed": seed,
            "score": score_of(policy, lessons, 0),
            "weights": sum(weight.numel() for weight in policy.parameters()),
        }  # fmt: skip


def large(nodes: int) -> Iterator[Row]:
    """One decision about a large graph, by the policy and by HEFT, each in a process of its own."""
    for placer in ("go", "heft"):
        command = [sys.executable, os.fspath(Path(__file__).resolve()), placer, str(nodes)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        yield {"kind": "large", "key": f"large {placer} {nodes}", **json.loads(done.stdout.splitlines()[-1])}


def decide(placer: str, nodes: int) -> Row:
    """Seconds of processor time and the peak of resident memory of one decision; the graph is there before."""
    work = drawn_sketch("rnnlm", nodes, np.random.default_rng(0)).work()
    task = PlacementTask(work, Devices.alike(4, bandwidth=4e9))
    _ = work.inputs, work.outputs, work.order
    began, wall = time.process_time(), time.monotonic()
    found = PLACERS.make("go", evaluations=1, checkpoint="untrained") if placer == "go" else PLACERS.make(placer)
    decisions = found.decide(task, np.random.default_rng(0))
    seconds, waited = time.process_time() - began, time.monotonic() - wall
    return {
        "placer": placer, "nodes": task.nodes, "processor_s": round(seconds, 2), "wall_s": round(waited, 2),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        "over_bound": task.evaluate(decisions).objective / lower_bound(task),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(decide(sys.argv[1], int(sys.argv[2]))))
