"""Instances of the ASPLOS 2025 contest on intra-operator parallelism (IOPDDL, Apache-2.0)."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rlflow.placement.choosing import Choices, best_choices

#: The best scores of the contest's teams (ti2-group/iopddl_experiments, MIT).
BEST = {"A": 6548641531, "B": 532843, "C": 84102445260, "G": 217039, "K": 2274276676, "L": 1970993742}


def read_problem(path: Path) -> Choices:
    """An instance; the file may be compressed."""
    content = path.read_bytes()
    found = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)["problem"]
    nodes, edges = found["nodes"], found["edges"]
    costs = [np.array(one, np.float64) for one in nodes["costs"]]
    pairs = np.array(edges["nodes"], np.int64).reshape(-1, 2)
    tables = [
        np.array(table, np.float64).reshape(len(costs[a]), len(costs[b]))
        for table, (a, b) in zip(edges["costs"], pairs.tolist(), strict=True)
    ]
    usages = [np.array(one, np.float64) for one in nodes["usages"]]
    spans = np.array(nodes["intervals"], np.int64).reshape(-1, 2)
    return Choices(costs, usages, spans, pairs, tables, float(found.get("usage_limit", np.inf)))


def chosen(folder: Path, seconds: float, names: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """A row for each instance."""
    if not folder.is_dir():
        raise SystemExit(f"There is no folder {folder}; get the instances with `make fetch-data`, or leave them out.")
    for path in sorted(folder.glob("*.json.gz")):
        name = path.name.removesuffix(".json.gz").rsplit("-", 1)[-1]
        if names and name not in names:
            continue
        problem = read_problem(path)
        began = time.thread_time()
        found = best_choices(problem, seconds)
        spent = time.thread_time() - began
        cost = problem.cost(found.choice)
        yield {
            "kind": "iopddl", "key": f"iopddl {name}", "instance": name, "nodes": problem.nodes,
            "edges": len(problem.edges), "cost": cost, "valid": problem.peak(found.choice) <= problem.limit,
            "over_best": cost / BEST[name] if name in BEST else None, "bound": found.bound,
            "gap": cost / found.bound if found.bound > 0 else None, "rounds": found.rounds, "seconds": round(spent, 1),
        }  # fmt: skip
