"""Does a bandit over features earn its place in the portfolio? Learn its table on one half, judge it on the other.

    python reproduce/learning/choose.py play  [--resume]     members alone on the training half: rows
    python reproduce/learning/choose.py learn                the table from these rows: build/learning/choice.json
    python reproduce/learning/choose.py judge [--resume]     the portfolio with and without it on the unseen half: rows
    python reproduce/learning/choose.py tables               what the rows say

``play`` runs every member of the portfolio alone on each training family, by both costs and at each budget of
BUDGETS. ``learn`` fits each one's part of the best known gain to the features of the graph; the ridge is the one with
the least error on families left out. Where no member gains anything there is nothing to choose, and the family is left
out. ``judge`` compares the portfolio by the learned table, by tables of random weights (the untrained double, another
with every seed) and by none. The rows are in results/choice.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [os.fspath(HERE), os.fspath(HERE.parent / "common")]

import results  # from the folder "common"
import tables  # from this folder
from families import CONFIG, read
from run import COSTS, RULES, WEIGHTS, Rows, priced, searched

from rlflow import price, search
from rlflow.files import write_atomically
from rlflow.search import Problem
from rlflow.search.choice import BanditTable, features, fit
from rlflow.synthesis import load_rules

OUT = HERE / "results" / "choice.jsonl"
TABLE = WEIGHTS / "choice.json"
#: What the portfolio is made of, and what else it can be given.
MEMBERS = ("beam", "backtracking", "annealing", "genetic")
BUDGETS, JUDGED, SEEDS = ("100x", "300x"), ("300x", "1s", "3s"), 3
RIDGES = (0.1, 1.0, 10.0, 100.0)


def play(kept: Rows) -> None:
    """Every member alone on the training half."""
    for cost in COSTS:
        for budget in BUDGETS:
            for family in CONFIG["training"]:
                for name in MEMBERS:
                    _search(kept, family, "training", name, "without", "", name, cost, budget)


def judge(kept: Rows, budgets: Sequence[str]) -> None:
    """The portfolio by each table on the unseen half."""
    table = BanditTable.read(TABLE)
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        drawn = {arm: rng.permutation(weights) for arm, weights in table.arms.items()}
        _write(WEIGHTS / f"choice-{seed}.json", {**table.to_dict(), "arms": {k: v.tolist() for k, v in drawn.items()}})
    entrants = (
        ("portfolio", "portfolio", "without", ""),
        ("portfolio by the table", f"portfolio:choice={TABLE}", "learned", ""),
        ("portfolio by the table untrained", f"portfolio:choice={WEIGHTS}/choice-{{seed}}.json", "double",
         "portfolio by the table"),
    )  # fmt: skip
    for cost in COSTS:
        for budget in budgets:
            for family in CONFIG["unseen"]:
                for name, spec, role, of in entrants:
                    _search(kept, family, "unseen", name, role, of, spec, cost, budget)


def _search(
    kept: Rows, family: str, half: str, name: str, role: str, of: str, spec: str, cost: str, budget: str
) -> None:
    drawn = getattr(search.make(spec.format(seed=0)), "randomised", False)
    for seed in range(SEEDS if drawn else 1):
        key = f"{family}/{name}/{budget}/{seed}/{cost}"
        if not kept.have(key):
            about = {"family": family, "half": half, "name": name, "role": role, "of": of}
            where = {"cost": cost, "budget": budget, "seed": seed}
            row = searched(read(family), spec.format(seed=seed), priced(cost, family), budget, seed)
            kept.add({"kind": "search", "key": key, **about, **where, **row})


def lessons(rows: list[dict[str, Any]], families: dict[str, str]) -> dict[str, list[tuple[str, Any, float]]]:
    """By family: (member, features, part of the best known gain) for each cost and budget where something is gained."""
    found: dict[str, list[tuple[str, Any, float]]] = {}
    gained: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for row in rows:
        if row["kind"] == "search" and row["half"] == "training":
            where = (row["family"], row["cost"], row["budget"])
            gained.setdefault(where, {}).setdefault(row["name"], []).append(row["gain"])
    for (family, cost, _), mine in gained.items():
        best = max(max(values) for values in mine.values())
        if best < tables.POINTS:
            continue
        seen = features(Problem(read(family), RULES, price.make("analytic", **COSTS[cost]), "1x"), families)
        found.setdefault(family, []).extend((arm, seen, statistics.fmean(v) / best) for arm, v in mine.items())
    return found


def error(by_family: dict[str, list[tuple[str, Any, float]]], ridge: float) -> float:
    """Mean squared error on each family by a table of the others; ``inf`` for a ridge stands for the means alone."""
    wrong = []
    for out, mine in by_family.items():
        rest = [row for family, rows in by_family.items() if family != out for row in rows]
        names, mean, scale, arms = fit(rest, min(ridge, 1e12))
        table = BanditTable(names, mean, scale, arms, {})
        wrong += [(table.predicted(seen)[arm] - value) ** 2 for arm, seen, value in mine]
    return statistics.fmean(wrong)


def learn() -> None:
    """The table, and its card."""
    rows, machines = results.read(OUT)
    families = {name: rule.family for name, rule in load_rules().items()}
    by_family = lessons(rows, families)
    errors = {ridge: error(by_family, ridge) for ridge in (*RIDGES, float("inf"))}
    ridge = min(RIDGES, key=lambda one: errors[one])
    names, mean, scale, arms = fit([row for mine in by_family.values() for row in mine], ridge)
    card = {
        "families": list(by_family), "nothing to choose": [f for f in CONFIG["training"] if f not in by_family],
        "budgets": list(BUDGETS), "costs": list(COSTS), "rows": sum(map(len, by_family.values())),
        "ridge": ridge, "error left out": {str(one): round(value, 5) for one, value in errors.items()},
        "commits": sorted({one["commit"] for one in machines.values()}),
    }  # fmt: skip
    _write(TABLE, BanditTable(names, mean, scale, arms, families, card=card).to_dict())
    print(json.dumps(card, indent=1))


def _write(path: Path, plain: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(plain, indent=1) + "\n").encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("play", "learn", "judge", "tables"))
    parser.add_argument("--resume", action="store_true", help="keep the rows that the file has")
    parser.add_argument("--renew", action="store_true", help="as --resume, but rows of lost commits are made again")
    parser.add_argument("--budgets", nargs="*", default=JUDGED, metavar="BUDGET", help="of judge")
    results.add_options(parser)
    options = parser.parse_args()
    if options.what == "learn":
        learn()
    elif options.what == "tables":
        rows, machines = results.read(OUT)
        print("\n".join(results.about(rows, machines)))
        for cost in COSTS:
            print(f"\nCost of a {cost.upper()}:")
            print("\n".join(tables.lines([row for row in rows if row.get("cost") == cost])))
    else:
        told = {"renew": options.renew, "dirty": options.dirty}
        resume = options.resume or options.renew or options.what == "judge"  # which adds to what its table came from
        kept = Rows(OUT, ["python", "reproduce/learning/choose.py", options.what], resume=resume, **told)
        if options.what == "play":
            play(kept)
        else:
            judge(kept, options.budgets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
