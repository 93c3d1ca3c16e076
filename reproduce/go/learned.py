"""GO's policy beside the searches: graphs of a family that it was not trained on, its parts left out, and its size."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlflow.agents.go.config import MOVES, TASKS, GoConfig
from rlflow.files import write_atomically
from rlflow.placement import PLACERS, Devices, PlacementTask, lower_bound
from rlflow.placement.level_search import AnnealedLevels
from rlflow.placement.ordering import ORDERS
from rlflow.placement.rules_of_thumb import by_rule
from rlflow.placement.sketches import FAMILIES, drawn_sketch
from rlflow.spawning import safe_context

Row = dict[str, Any]
WITHOUT = {"whole": {}, "no GNN": {"gnn": False}, "no attention": {"attention": False}, "no gate": {"gate": False},
           "T = 1": {"iterations": 1}, "tasks apart": {"together": False}, "no rules": {"rules": False}}  # fmt: skip
#: Of a row, by weights that are fresh and weights that were trained: the policy by itself, with annealing's moves, with
#: updates on the graph before that, and with as many evaluations as these take but without updates.
COLUMNS = ("untrained alone", "zero-shot alone", "untrained", "zero-shot", "from scratch", "fine-tuned",
           "untrained longer", "zero-shot longer")  # fmt: skip


class Way(NamedTuple):
    """How a column's policy decides about a test graph."""

    trained: bool
    tried: int
    moves: int
    steps: int


@dataclass(frozen=True)
class Setting:
    """How much is done. ``families``: that are left out, one after the other; ``seeds``: trainings for each;
    ``updates``: of a training, after its imitation, whose other options are the usual ones but for ``changes``;
    ``steps``: updates on the test graph where the policy is fine-tuned; ``tried``: decisions that are tried in every
    column, of which ``moves`` are annealing's for each of the policy's own; ``alone``: of its own where there are no
    others; ``evaluations``: of the searches beside it; ``sizes``: least and most nodes of the test graphs, which are
    larger than what it learns on.
    """

    families: tuple[str, ...] = tuple(FAMILIES)
    tasks: tuple[str, ...] = TASKS
    seeds: int = 5
    updates: int = 10
    steps: int = 50
    tried: int = 1000
    moves: int = MOVES
    alone: int = 64
    evaluations: int = 10_000
    sizes: tuple[int, int] = (300, 400)
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> GoConfig:
        """The training's."""
        return GoConfig(**self.changes)

    def way(self, column: str) -> Way:
        """What one of :data:`COLUMNS` stands for."""
        trained = column.startswith(("zero-shot", "fine-tuned"))
        if column.endswith("alone"):
            return Way(trained, self.alone, 0, 0)
        if column.endswith("longer"):
            return Way(trained, self.tried + self.steps * self.config.samples * (1 + self.moves), self.moves, 0)
        steps = self.steps if column in ("from scratch", "fine-tuned") else 0
        return Way(trained, self.tried, self.moves, steps)


SETTINGS = {
    "full": Setting(),
    "reduced": Setting(
        families=("gnmt", "transformer", "nasnet"), tasks=("placement", "ordering"), seeds=2, updates=4,
        sizes=(100, 150), changes={"pool": 3, "demonstrations": 300, "imitate": 20},
    ),
    "tiny": Setting(
        families=("gnmt", "nasnet"), tasks=("placement", "ordering"), seeds=1, updates=1, steps=2, tried=8,
        moves=1, alone=4, evaluations=30, sizes=(20, 30),
        changes={"hidden": 16, "heads": 2, "layers": 1, "samples": 4, "pool": 1, "smallest": 20, "largest": 30,
                 "demonstrations": 10, "imitate": 1, "batch": 1, "epochs": 1},
    ),
}  # fmt: skip


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
    """What equal searches find: by annealing, by drawing, by a genetic algorithm."""
    rng = np.random.default_rng(seed)
    drawn = PLACERS.make("random", evaluations=evaluations).decide(task, rng)
    found = {f"random {evaluations}": float(task.scores(drawn[None])[0])}
    if name == "placement":
        entrants = {"annealing": "annealing", "brkga": "brkga", "annealing that goes back": "annealing:back=300"}
        for name, placer in entrants.items():
            row = PLACERS.make(f"{placer}{',' if ':' in placer else ':'}evaluations={evaluations}").decide(task, rng)
            found[f"{name} {evaluations}"] = float(task.scores(row[None])[0])
    else:
        found[f"annealing {evaluations}"] = AnnealedLevels(evaluations).decide(
            task, rng, tuple(by_rule(task, evaluations - 1))
        )[0]
    return found


def bound_of(task: Any) -> float:
    return lower_bound(task) if isinstance(task, PlacementTask) else task.bound()


def tests_of(family: str, setting: Setting) -> list[Any]:
    """Graphs of the family that no training and no choice of weights has seen: on four devices, with the links of
    middle speed and with the slowest.
    """
    from rlflow.agents.go.lessons import TEST_SEED, drawn_lessons

    config = dataclasses.replace(setting.config, smallest=setting.sizes[0], largest=setting.sizes[1])
    drawn = drawn_lessons([family], config, TEST_SEED, setting.tasks, count=6)
    return [drawn[1], drawn[5]]


def others_on(family: str, name: str, folder: Path) -> list[dict[str, dict[str, float]]]:
    """Of each test graph of the family and each task, what everything without learning finds: with as many evaluations
    as the policy has alone, with as many as it has with annealing's moves, and with more than it has with its steps. It
    is kept in the folder.
    """
    kept = folder / f"{name}-{family}-others.json"
    if kept.exists():
        return list(json.loads(kept.read_text(encoding="utf-8")))
    setting, found = SETTINGS[name], []
    for lesson in tests_of(family, setting):
        one = {}
        for number, task in lesson.asked():
            one[TASKS[number]] = usual(task, TASKS[number])
            for evaluations in (setting.alone, setting.tried, setting.evaluations):
                one[TASKS[number]] |= searched(task, TASKS[number], evaluations, 0)
        found.append(one)
    write_atomically(kept, json.dumps(found))
    return found


def left_out(
    name: str,
    families: Sequence[str] | None,
    folder: Path,
    have: Callable[..., bool],
    *,
    seeds: Sequence[int] | None = None,
    jobs: int = 1,
) -> Iterator[Row]:
    """A row for each seed, family that is left out of the training, and task, that is not there. ``name``: of the
    setting; ``families``, ``seeds``: only these of it; ``jobs``: trainings side by side, each in a process with one
    thread; ``folder``: where trainings are kept, to go on with one that was stopped.
    """
    setting = SETTINGS[name]
    folder.mkdir(parents=True, exist_ok=True)
    missing = [
        (family, seed)
        for seed in range(setting.seeds)
        for family in setting.families
        if (not families or family in families)
        and (not seeds or seed in seeds)
        and not all(have(key=f"policy {name} {family} {task} {seed} 1") for task in setting.tasks)
    ]
    if jobs <= 1:
        for family, seed in missing:
            yield from rows_without(family, name, seed, folder)
        return
    with ProcessPoolExecutor(jobs, mp_context=safe_context()) as pool:
        waiting = [pool.submit(rows_without, family, name, seed, folder) for family, seed in missing]
        try:
            for done in as_completed(waiting):
                yield from done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def rows_without(family: str, name: str, seed: int, folder: Path) -> list[Row]:
    """The rows of one training."""
    from rlflow.agents.go.deciding import best_of, fine_tuned
    from rlflow.agents.go.network import make_go
    from rlflow.nn.threads import one_thread

    setting = SETTINGS[name]
    policy = learnt([one for one in FAMILIES if one != family], setting, seed, folder / f"{name}-{family}-{seed}.npz")
    fresh, found = make_go(setting.config, 100 + seed), {}
    for column in COLUMNS:
        way, rng = setting.way(column), np.random.default_rng(seed)
        start = policy if way.trained else fresh
        for graph, again in enumerate(tests_of(family, setting)):  # nothing is remembered from the others
            with one_thread():
                made = fine_tuned(start, again, way.steps, rng, moves=way.moves) if way.steps else start
                values = [one[0] for one in best_of(made, again, way.tried, rng, moves=way.moves)]
            if way.steps:
                seen = [best**2 * unit for best, unit in zip(again.best, again.reference, strict=True)]
                values = [min(pair) for pair in zip(values, seen, strict=True)]
            found[column, graph] = values
    others = others_on(family, name, folder)
    return [
        {"kind": "policy", "key": f"policy {name} {family} {TASKS[number]} {seed} {graph}", "setting": name,
         "family": family, "task": TASKS[number], "seed": seed, "graph": graph, "updates": setting.updates,
         "nodes": task.nodes, "evidence": task.evidence, "bound": bound_of(task),
         **{column: found[column, graph][number] for column in COLUMNS}, "others": others[graph][TASKS[number]]}
        for graph, lesson in enumerate(tests_of(family, setting)) for number, task in lesson.asked()
    ]  # fmt: skip


def learnt(families: list[str], setting: Setting, seed: int, out: Path) -> Any:
    """The policy of a training, which goes on where it was stopped."""
    from rlflow.agents.go.teaching import GoTraining

    begun = out.with_name(f"{out.name}.last").exists()
    training = GoTraining(families, setting.config, tasks=setting.tasks, seed=seed, out=out, resume=begun)
    return training.train(setting.updates).policy()


def over_the_others(rows: list[Row], value: Callable[[Row], float]) -> float:
    """What it is over the best of the others: the geometric mean over graphs, of that the median over seeds."""
    ratios: dict[int, list[float]] = {}
    for row in rows:
        ratios.setdefault(row["seed"], []).append(value(row) / min(row["others"].values()))
    return float(np.median([np.exp(np.mean(np.log(ones))) for ones in ratios.values()]))


def without(name: str, folder: Path, have: Callable[..., bool], seed: int = 0) -> Iterator[Row]:
    """A row for each part that is left out: trained on all families, tried on other graphs of them."""
    from rlflow.agents.go.lessons import TEST_SEED, drawn_lessons
    from rlflow.agents.go.teaching import compared

    for part, changes in WITHOUT.items():
        setting, key = SETTINGS[name], f"without {name} {part}"
        if have(key=key):
            continue
        setting = dataclasses.replace(setting, changes={**setting.changes, **changes})
        policy = learnt(list(FAMILIES), setting, seed, folder / f"{name}-without-{part.replace(' ', '-')}.npz")
        lessons = drawn_lessons(list(FAMILIES), setting.config, TEST_SEED, setting.tasks, count=2)
        rows = compared({"policy": policy}, lessons, 0)
        means = {
            task: float(np.exp(np.mean([np.log(row["policy"]) for row in rows if row["task"] == task])))
            for task in setting.tasks
        }
        yield {
            "kind": "without", "key": key, "setting": name, "part": part, "updates": setting.updates, "seed": seed,
            "graphs": len(lessons), "weights": sum(weight.numel() for weight in policy.parameters()), "means": means,
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
