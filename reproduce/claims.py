"""What papers claim, and what we found: the table in reproduce/README.md, made from the results files.

    python reproduce/claims.py            print the table
    python reproduce/claims.py --write    put it into reproduce/README.md

A test compares the page with the files, and the README's own table of gains with its file.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE / "README.md"
BEGIN, END = "<!-- claims: written by reproduce/claims.py -->", "<!-- end of claims -->"

Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Claim:
    """``file``: the results, below this folder; ``ours``: what they say, in words; ``time``: on two cores."""

    claim: str
    paper: str
    file: str
    ours: Callable[[Rows], str]
    command: str
    time: str


def _rules(rows: Rows) -> str:
    found = Counter(row["status"] for row in rows if row["file"] == "TASO .pb")
    true = sum(count for status, count in found.items() if status not in ("false", "unknown"))
    conditions = sum(1 for row in rows if row["file"] == "TASO .pb" and row["conditions"])
    return (
        f"{true} of {found.total()} accounted for by proved rules: {found['ours']} are ours, {found['derived']} follow "
        f"from ours, {found['identity']} are trivial; {conditions} of them need conditions that the file does not state"
    )


def _tensat(rows: Rows) -> str:
    mean = {label: _mean_cost(rows, label) for label in ("eqsat", "taso")}
    return (
        f"with the analytic cost, equality saturation leaves {mean['eqsat']:.4f} of the cost (geometric mean of eight "
        f"models), TASO's backtracking {mean['taso']:.4f}"
    )


def _mean_cost(rows: Rows, label: str) -> float:
    by_model: dict[str, list[float]] = {}
    for row in rows:
        if row.get("label") == label and row.get("cost") == "analytic":
            by_model.setdefault(row["model"], []).append(row["cost_after_ms"] / row["cost_before_ms"])
    return math.exp(statistics.fmean(math.log(statistics.fmean(found)) for found in by_model.values()))


def _sizes(rows: Rows) -> str:
    met = sum(bool(row["met"]) for row in rows)
    return f"{met} of {len(rows)} bars met: numbers of nodes and classes, saturation, extraction"


def _taso(rows: Rows) -> str:
    models = [row for row in rows if row.get("kind") == "model"]
    best = max(models, key=lambda row: row["speedup"])
    gained = sum(row["improved"] for row in models)
    return (
        f"in ONNX Runtime on a CPU, {gained} of {len(models)} examples become faster"
        + (f", {best['name']} the most ({best['speedup']:.2f} times)" if gained else " with TASO's budgets")
    )


def _zoo(rows: Rows) -> str:
    gains = sorted((row["speedup"] for row in rows if row["improved"]), reverse=True)
    return f"{len(gains)} of {len(rows)} models become faster, by {gains[-1]:.2f} to {gains[0]:.2f} times"


def _core(rows: Rows) -> str:
    by_name = {row["name"]: row for row in rows}
    names = ("enumeration", "incremental", "candidates", "opening", "growth", "memory")
    missed = [name for name in names if not by_name[name]["met"]]
    return (
        f"all matches in {by_name['enumeration']['value']:.2f} ms, after one rewrite in "
        f"{by_name['incremental']['value']:.2f} ms, {by_name['candidates']['value']:,.0f} candidates a second; "
        + (f"missed: {', '.join(missed)}" if missed else "all bars met")
    )


def _outputs(rows: Rows) -> str:
    wrong = [row for row in rows if row["kind"] == "wrong"]
    right = [row for row in rows if row["kind"] == "right"]
    caught = sum(not row["passed"] for row in wrong)
    passed = sum(row["passed"] for row in right)
    return f"{caught} of {len(wrong)} wrong models caught, {passed} of {len(right)} right ones pass"


def _kernels(rows: Rows) -> str:
    gains = [row for row in rows if row.get("kind") == "model"]
    best = max(gains, key=lambda row: row["ratio"])
    return f"Winograd's algorithm makes {best['model']} {best['ratio']:.2f} times as fast as stock ONNX Runtime"


CLAIMS = (
    Claim("TASO ships rules that hold", "133 rules, “verified” (SOSP 2019)", "rules/results/2026-11-22.jsonl", _rules,
          "make rules-table", "half an hour"),
    Claim("Substitutions make models faster", "up to 2.8 times on a GPU (TASO)", "taso/results/2026-11-21.jsonl", _taso,
          "python reproduce/taso/run.py", "15 minutes"),
    Claim("Equality saturation finds better graphs than backtracking",
          "up to 16 % faster graphs, 48 times less search (Tensat, MLSys 2021)", "tensat/results/runs.jsonl", _tensat,
          "make tensat-table", "two hours"),
    Claim("E-graphs of Tensat's models are as published", "the files of extraction-gym", "eqsat/results/latest.jsonl",
          _sizes, "python reproduce/eqsat/run.py --data ../shared/data", "10 minutes"),
    Claim("Seven zoo models beside ONNX Runtime with all its optimisations", "none", "foundation/results/latest.jsonl",
          _zoo, "make zoo-table", "half an hour"),
    Claim("The native core on BERT-base", "none", "micro/results/2026-11-20.jsonl", _core, "make micro", "3 minutes"),
    Claim("The comparison of outputs", "none", "output_check/results/latest.jsonl", _outputs,
          "python reproduce/output_check/run.py", "4 minutes"),
    Claim("Kernels inside a stock runtime", "none", "kernels/results/kernels.jsonl", _kernels,
          "python reproduce/kernels/run.py", "9 minutes"),
)  # fmt: skip


def read(claim: Claim) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A claim's rows, and the headers of the runs that they are of."""
    lines = [json.loads(line) for line in (HERE / claim.file).read_text(encoding="utf-8").splitlines()]
    machines = [line for line in lines if line.get("kind") == "machine"]
    return [line for line in lines if line.get("kind") != "machine"], machines


def table() -> str:
    """The table in Markdown."""
    lines = ["| Claim | Paper | Ours | Command | Time | Commit |", "|---|---|---|---|---|---|"]
    for one in CLAIMS:
        rows, machines = read(one)
        commits = ", ".join(dict.fromkeys(map(_commit, machines)))
        ours = f"{one.ours(rows)} ([file]({one.file}))"
        lines.append(f"| {one.claim} | {one.paper} | {ours} | `{one.command}` | {one.time} | {commits} |")
    return "\n".join(lines)


def _commit(machine: dict[str, Any]) -> str:
    commit, changed, _ = str(machine["commit"]).partition("-dirty")
    return f"`{commit}`" + (" with uncommitted changes" if changed else "") + f", {machine['date'][:10]}"


def with_table(page: str) -> str:
    """The page with the table between its marks."""
    marks = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    assert marks.search(page), f"{PAGE} has no marks for the table"
    return marks.sub(lambda _: f"{BEGIN}\n{table()}\n{END}", page)


def main() -> None:
    """Print the table, or put it into the page."""
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(table())


if __name__ == "__main__":
    main()
