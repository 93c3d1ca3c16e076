"""DOPPLER's four computation graphs (CC BY 4.0) in the rules of its simulator, and who places them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rivals

from rlflow.agents.go.config import MOVES
from rlflow.placement import PLACERS, Devices, PlacementTask, Work, lower_bound

#: The published scores are the simulator's divided by this.
UNIT = 1e10
BUILDING = ("single", "contiguous", "critical-path", "etf", "heft", "min-cut")
SEARCHING = ("random", "annealing", "brkga")
BACK = "annealing that goes back"
#: GO as a placer: decisions that are tried by its policy alone, and with annealing's moves; and updates on the graph
#: before, of 16 decisions each.
ALONE, TRIED, STEPS = 64, 1000, 50


class Entrant(NamedTuple):
    """``time``: of a task and a seed, the time of the placement that is found with so many evaluations."""

    time: Callable[[PlacementTask, int], float]
    evaluations: int = 1


def entrants(evaluations: int) -> dict[str, Entrant]:
    """All that take part, by name; those that search or learn on the graph have ``evaluations``, GO has fewer."""
    known = {name: Entrant(_by(name)) for name in BUILDING}
    known |= {name: Entrant(_by(f"{name}:evaluations={evaluations}"), evaluations) for name in SEARCHING}
    known[BACK] = Entrant(_by(f"annealing:back=300,evaluations={evaluations}"), evaluations)
    for name, rival in (("GDP-style", rivals.gdp_style), ("Placeto-style", rivals.placeto_style)):
        known[name] = Entrant(lambda task, seed, rival=rival: rival(task, evaluations, seed), evaluations)
    for weights in ("trained", "untrained"):
        more = ",checkpoint=untrained" if weights == "untrained" else ""
        known[f"GO {weights}, alone"] = Entrant(_by(f"go:evaluations={ALONE},moves=0{more}"), ALONE)
        known[f"GO {weights}"] = Entrant(_by(f"go:evaluations={TRIED}{more}"), TRIED)
        stepping = TRIED + 16 * STEPS * (1 + MOVES)
        known[f"GO {weights}, {STEPS} steps"] = Entrant(_by(f"go:evaluations={TRIED},steps={STEPS}{more}"), stepping)
    return known


def _by(spec: str) -> Callable[[PlacementTask, int], float]:
    def time(task: PlacementTask, seed: int) -> float:
        return task.evaluate(PLACERS.make(spec).decide(task, np.random.default_rng(seed))).objective

    return time


def placed(
    folder: Path, evaluations: int, seeds: int, names: list[str] | None, have: Callable[..., bool]
) -> Iterator[dict[str, Any]]:
    """A row for each graph and placer (default: all) that is not there with as many evaluations and seeds."""
    if not folder.is_dir():
        raise SystemExit(f"There is no folder {folder}; get the graphs with `make fetch-data`, or leave doppler out.")
    known = entrants(evaluations)
    for name, entrant in known.items():
        if names and name not in names:
            continue
        for path in sorted(folder.glob("*.txt")):
            key, repeated = f"doppler {path.stem} {name}", seeds if entrant.evaluations > 1 else 1
            if entrant.evaluations > 1:
                key += f" {entrant.evaluations}"
            if have(key=key, evaluations=entrant.evaluations, seeds=repeated):
                continue
            task = PlacementTask(read_graph(path), machine())
            found = [entrant.time(task, seed) for seed in range(repeated)]
            value, base = float(np.median(found)), known["critical-path"].time(task, 0)
            yield {
                "kind": "doppler", "key": key, "graph": path.stem, "operations": task.nodes, "placer": name,
                "value": value, "worst": max(found), "ratio": base / value, "gap": value / lower_bound(task),
                "evidence": task.evidence, "evaluations": entrant.evaluations, "seeds": repeated,
            }  # fmt: skip


def read_graph(path: Path) -> Work:
    """The operations of a graph file as tasks; what they read from outside is there from the start, on every device.

    Line 1: the number of operations and inputs; 2: the operations that read an input; 3 and 4: sources and targets of
    the edges; then for each operation its compute and its communication cost.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    given, sources, targets = ([int(one) for one in line.split(",") if one.strip()] for line in lines[1:4])
    costs = [tuple(float(one) for one in line.split(",")[:2]) for line in lines[4:] if line.strip()]
    if len(costs) + len(given) != int(lines[0]) or len(sources) != len(targets):
        raise ValueError(f"{path.name}: {len(costs)} costs and {len(given)} inputs for {lines[0]} nodes")
    compute, sent = zip(*costs, strict=True)
    return Work.of_edges(
        np.array(compute) / UNIT,
        zip(sources, targets, strict=True),
        np.array(sent) / UNIT,
        list(map(str, range(len(costs)))),
    )


def machine(count: int = 4) -> Devices:
    """Equal devices; a value costs its producer's communication cost, and links do not contend."""
    return Devices.alike(count, bandwidth=1.0, latency=0.0, serial_links=False)
