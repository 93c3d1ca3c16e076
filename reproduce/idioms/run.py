"""Each idiom alone in a graph, in several spellings: does the command reach what is gained by hand?

    python reproduce/idioms/run.py [--only NAME ...] [--unseen] [--budget 8s] [--resume]

idioms.json names what exporters write, in spellings that rules were written towards, and its replacement by hand;
unseen.json has spellings that were written before it was tried which rules fire there. The graph, its replacement and
the command's result are timed in turn, in sessions of their own; a spelling reaches its bar where the result is at
least 0.9 times as fast as the replacement. Where the command keeps the graph as it came, its gain is 1. The table shows
the gain that was measured by hand elsewhere, too. results/latest.jsonl holds the machine and one row a spelling. Exit
status 1 when an idiom reaches its bar in fewer than four unseen spellings.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, os.fspath(HERE.parent / "common"))

import results
import sweep

IDIOMS: list[dict[str, Any]] = json.loads((HERE / "idioms.json").read_text(encoding="utf-8"))
UNSEEN: dict[str, dict[str, list[str]]] = json.loads((HERE / "unseen.json").read_text(encoding="utf-8"))
#: A spelling must reach so much of the gain by hand.
WITHIN = 0.9
#: In so many unseen spellings.
ENOUGH = 4
#: Fresh sessions of each graph.
BLOCKS = 5
#: The axes that reductions name: the last, and that of channels.
AXES = "int64[1] ax = {-1}, int64[1] ch = {1}"


def spellings(idiom: dict[str, Any]) -> dict[str, list[str]]:
    """Constants and body of the spellings, by name."""
    return {**idiom["spellings"], **UNSEEN[idiom["name"]]}


def by_hand(idiom: dict[str, Any], spelling: str) -> list[str]:
    """Constants and body of the replacement."""
    return idiom["hand"].get(spelling) or idiom["hand"][""]


def model_text(idiom: dict[str, Any], form: list[str]) -> str:
    """The graph in ONNX's own text, of a form's constants and body."""
    constants, body = form
    used = [part for part in AXES.split(", ") if f", {part.split()[1]})" in body]
    given = ", ".join(part for part in [constants, *used] if part)
    shape = idiom.get("output") or idiom["input"].split(" x")[0]
    header = f'<ir_version: 10, opset_import: ["": {idiom["opset"]}]>'
    return f"{header}\nidiom ({idiom['input']}) => ({shape} y)" + (f" <{given}>" if given else "") + f" {{\n{body}\n}}"


def measure(idiom: dict[str, Any], spelling: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The row of one spelling."""
    import onnx

    from rlflow.benchmark import bench

    name = f"{idiom['name']}/{spelling}"
    source, hand = (folder / f"{idiom['name']}-{spelling}{end}.onnx" for end in ("", "-hand"))
    onnx.save(onnx.parser.parse_model(model_text(idiom, spellings(idiom)[spelling])), source)
    onnx.save(onnx.parser.parse_model(model_text(idiom, by_hand(idiom, spelling))), hand)
    row = sweep.optimise_file(name, source, options.budget, options.seed, folder, keep=True)
    written = folder / row["written"]
    entrants = [source, hand, written] if row.get("improved") else [source, hand]
    ratios = [one.ratio for one in bench(entrants, seconds=options.seconds, blocks=BLOCKS)]
    written.unlink(missing_ok=True)
    timed = {"by_hand": ratios[1], "by_command": ratios[2] if row.get("improved") else 1.0}
    return {**row, "idiom": idiom["name"], "spelling": spelling, "unseen": spelling in UNSEEN[idiom["name"]], **timed}


def reached(row: dict[str, Any]) -> bool:
    return row["exit_status"] == 0 and row["by_command"] >= WITHIN * row["by_hand"]


def met(rows: list[dict[str, Any]], idiom: str) -> bool:
    """Whether an idiom reaches its bar in enough unseen spellings."""
    return sum(row["unseen"] and reached(row) for row in rows if row["idiom"] == idiom) >= ENOUGH


def table(rows: list[dict[str, Any]]) -> str:
    """One line a spelling: the gain by hand, and by the command."""
    facts = {idiom["name"]: idiom["gain"] for idiom in IDIOMS}
    lines = ["| Idiom | Spelling | facts | by hand here | by the command | |", "|---|---|--:|--:|--:|---|"]
    for row in rows:
        name, how = row["idiom"], "unseen" if row["unseen"] else "seen"
        verdict = "reached" if reached(row) else "missed"
        gains = f"{facts[name]:.2f} | {row['by_hand']:.2f} | {row['by_command']:.2f}"
        lines.append(f"| {name} | {row['spelling']} ({how}) | {gains} | {verdict} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], choices=[one["name"] for one in IDIOMS], metavar="NAME")
    parser.add_argument("--unseen", action="store_true", help="only spellings that rules were not written towards")
    parser.add_argument("--budget", default="8s", help="of each run")
    parser.add_argument("--seconds", type=float, default=4.0, help="of the timing in turn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "latest.jsonl", help="file of the rows")
    parser.add_argument("--resume", action="store_true", help="keep the spellings that the file already has")
    results.add_options(parser)
    options = parser.parse_args()
    command = ["python", "reproduce/idioms/run.py", "--budget", options.budget, "--seed", str(options.seed)]
    kept = results.Results(options.out, command, resume=options.resume, dirty=options.dirty, bulky=sweep.BULKY)
    done = {row["name"] for row in kept.rows}
    with tempfile.TemporaryDirectory(prefix="rlflow-idioms-") as scratch:
        for idiom in IDIOMS:
            for spelling in spellings(idiom):
                wanted = not options.only or idiom["name"] in options.only
                wanted = wanted and (not options.unseen or spelling in UNSEEN[idiom["name"]])
                if wanted and f"{idiom['name']}/{spelling}" not in done:
                    row = kept.add(measure(idiom, spelling, options, Path(scratch)))
                    gains = f"{row['by_command']:.2f} of {row['by_hand']:.2f}"
                    print(f"{row['name']}: {gains}", file=sys.stderr, flush=True)
    print(kept.about())
    print(table(kept.rows))
    names = {row["idiom"] for row in kept.rows}
    enough = sum(met(kept.rows, name) for name in names)
    print(f"{enough} of {len(names)} idioms reach their bar in {ENOUGH} unseen spellings.")
    return 0 if enough == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
