"""Accounts for every rule of TASO's graph_subst.pb and of Tensat's rule files.

    python reproduce/rules/run.py [--data FOLDER] [--jobs 2] [--matches 200] [--out FILE]

FOLDER (by default ../shared/data beside the checkout) holds taso_graph_subst.pb, tensat_converted.txt,
tensat_converted_multi.txt and tensat_single_rules.txt. Every rule is judged by `rlflow rules import --readings`: true
under which assumptions, identity here, a rule of ours, derived from ours in at most three steps, or false. The rows
go to results/latest.jsonl, the tables to standard output. Interrupted, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import results  # from the folder "common"

FILES = {
    "TASO .pb": ("taso_graph_subst.pb", "taso-pb"),
    "Tensat single": ("tensat_converted.txt", "tensat"),
    "Tensat multi": ("tensat_converted_multi.txt", "tensat-multi"),
    "Tensat equations": ("tensat_single_rules.txt", "tensat"),
}
#: The two rules of two patterns that Tensat appends in its source (rewrites.rs, PRE_DEFINED_MULTI).
PREDEFINED = "\n".join(
    f"(conv2d 1 1 0 {act} ?x_1 ?x_{2 + k})=>(split_{k} (split 1 (conv2d 1 1 0 {act} ?x_1 "
    "(concat 0 4 (enlarge ?x_2 ?x_3) ?x_3))))"
    for act in (0, 2)
    for k in (0, 1)
)
#: Printed, and in the raw file: the repository keeps what became of each rule.
BULKY = ("statement", "readings", "truth", "counterexample", "origin")
STATUSES = ("as is", "conditions", "identity", "ours", "derived", "refuted", "inexpressible", "undecided")
READINGS = (
    "TASO's own shape checks",
    "equal elementwise shapes",
    "and groups = 1 on source convolutions",
    "and equal Cin and Cout",
)


def judged(file: Path, kind: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The outcomes of one file, through the command line."""
    command = [sys.executable, "-m", "rlflow", "rules", "import", os.fspath(file), "--format", kind]
    command += ["--json", "--readings"]
    command += ["--jobs", str(options.jobs), "--matches", str(options.matches)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return list(json.loads(done.stdout))


def under(row: dict[str, Any], reading: str) -> str:
    """A rule's status under a reading; one that is not listed differs in nothing from the reading before."""
    status = "not judged"
    known = dict(map(tuple, row["readings"]))
    for name in READINGS:
        status = known.get(name, status)
        status = status if status != "false" else known.get(f"{name}, padding counted", status)
        if name == reading:
            return status
    return status


def table(rows: list[list[str]]) -> str:
    """Markdown."""
    head, *body = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body])


def summary(found: dict[str, list[dict[str, Any]]]) -> str:
    """How many rules of each file have each status."""
    rows = [["file", "rules", *STATUSES]]
    for name, outcomes in found.items():
        counts = Counter(row["status"] for row in outcomes)
        rows.append([name, str(len(outcomes)), *(str(counts[s] or "") for s in STATUSES)])
    return table(rows)


def falsehoods(found: dict[str, list[dict[str, Any]]]) -> str:
    """How many rules of each file are false under each reading, and which."""
    rows = [["file", *READINGS]]
    for name, outcomes in found.items():
        cells = []
        for reading in READINGS:
            false = [str(row["index"]) for row in outcomes if under(row, reading) == "false"]
            cells.append(f"{len(false)}" + (f" ({' '.join(false)})" if 0 < len(false) <= 40 else ""))
        rows.append([name, *cells])
    return table(rows)


def steps(found: dict[str, list[dict[str, Any]]]) -> str:
    """How long the derivations are."""
    rows = [["file", "1 step", "2", "3", "of them with a step from right to left", "with constant weights"]]
    for name, outcomes in found.items():
        chains = [row for row in outcomes if row["chain"]]
        lengths = Counter(len(row["chain"]) for row in chains)
        turned, weighted = sum(row["backwards"] > 0 for row in chains), sum(bool(row["weights"]) for row in chains)
        rows.append([name, *(str(lengths[k]) for k in (1, 2, 3)), str(turned), str(weighted)])
    return table(rows)


def line(name: str, row: dict[str, Any]) -> str:
    """One rule."""
    forward = len(row["chain"]) - row["backwards"]
    chain = ", ".join(step + (" (right to left)" if k >= forward else "") for k, step in enumerate(row["chain"]))
    needs = "; ".join(row["conditions"])
    constant = f"constant: {' '.join(row['weights'])}" if row["weights"] else ""
    parts = [row["status"], chain, f"with {needs}" if needs else "", constant]
    if row["counterexample"]:
        parts.append(f"false as it stands at {row['counterexample']}: {row['reason']}")
    elif row["reason"]:
        parts.append(row["reason"])
    return f"{name} {row['index']}: {row['statement']}\n    " + " · ".join(part for part in parts if part)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE.parents[1].parent / "shared" / "data")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--matches", type=int, default=200, help="exact comparisons a rule and reading")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "latest.jsonl")
    results.add_options(parser)
    options = parser.parse_args()
    if not (options.data / FILES["TASO .pb"][0]).is_file():
        parser.error(f"there is no {FILES['TASO .pb'][0]} in {options.data}; say where with --data")
    command = ["python", "reproduce/rules/run.py"]
    kept = results.Results(options.out, command, dirty=options.dirty, bulky=BULKY)
    found = {name: judged(options.data / file, kind, options) for name, (file, kind) in FILES.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "predefined_multi.txt"
        path.write_text(PREDEFINED, encoding="utf-8")
        found["Tensat predefined multi"] = judged(path, "tensat-multi", options)
    kept.extend([{"file": name, **row} for name, outcomes in found.items() for row in outcomes])
    for name in ("TASO .pb", "Tensat predefined multi"):
        print("\n".join(line(name, row) for row in found[name]))
    print("\n## What became of the rules\n", summary(found), sep="\n")
    print("\n## False under which assumptions (numbers of the rules in their file)\n", falsehoods(found), sep="\n")
    print("\n## Length of the derivations\n", steps(found), sep="\n")
    every = [(name, row) for name, outcomes in found.items() for row in outcomes]
    lost = [item for item in every if item[1]["status"] in ("undecided", "inexpressible")]
    news = [item for item in every if item[1]["status"] in ("as is", "conditions")]
    print("\n## Neither in the library nor derived\n")
    print("\n".join(line(*item) for item in [*news, *lost]) or "none")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
