"""Each idiom alone in a graph, in several spellings: does the command reach what is gained by hand?

    python reproduce/idioms/run.py [--only NAME ...] [--budget 8s] [--resume]

idioms.json names what exporters write and how many times as fast its replacement was by hand; a spelling reaches its
bar where the command's result is at least 90 % of that. results/latest.jsonl holds the machine and one row a spelling.
Exit status 1 when a run failed or a bar is missed.
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
#: A spelling must reach so much of the gain by hand.
WITHIN = 0.9
#: The axes that reductions name: the last, and that of channels.
AXES = "int64[1] ax = {-1}, int64[1] ch = {1}"


def model_text(idiom: dict[str, Any], spelling: str) -> str:
    """The graph in ONNX's own text."""
    constants, body = idiom["spellings"][spelling]
    used = [part for part in AXES.split(", ") if f", {part.split()[1]})" in body]
    given = ", ".join(part for part in [constants, *used] if part)
    shape = idiom["input"].split(" x")[0]
    header = f'<ir_version: 10, opset_import: ["": {idiom["opset"]}]>'
    return f"{header}\nidiom ({idiom['input']}) => ({shape} y)" + (f" <{given}>" if given else "") + f" {{\n{body}\n}}"


def measure(idiom: dict[str, Any], spelling: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The row of one spelling."""
    import onnx

    name = f"{idiom['name']}/{spelling}"
    source = folder / f"{idiom['name']}-{spelling}.onnx"
    onnx.save(onnx.parser.parse_model(model_text(idiom, spelling)), source)
    row = sweep.optimise_file(name, source, options.budget, options.seed, folder)
    return {**row, "idiom": idiom["name"], "spelling": spelling, "by_hand": idiom["gain"]}


def gain(row: dict[str, Any]) -> float:
    """The confirmed speed-up; 1 where the model was kept as it came."""
    return float(row["speedup"]) if row.get("improved") else 1.0


def reached(row: dict[str, Any]) -> bool:
    return row["exit_status"] == 0 and gain(row) >= WITHIN * row["by_hand"]


def table(rows: list[dict[str, Any]]) -> str:
    """One line an idiom: the gain by hand, and that of each spelling."""
    lines = ["| Idiom | by hand | by the command, spelling by spelling | reached |", "|---|--:|---|--:|"]
    for name in dict.fromkeys(row["idiom"] for row in rows):
        mine = [row for row in rows if row["idiom"] == name]
        gains = ", ".join(f"{row['spelling']} {gain(row):.2f}" for row in mine)
        met = f"{sum(map(reached, mine))} of {len(mine)}"
        lines.append(f"| {name} | {mine[0]['by_hand']:.2f} | {gains} | {met} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], choices=[one["name"] for one in IDIOMS], metavar="NAME")
    parser.add_argument("--budget", default="8s", help="of each run")
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
            for spelling in idiom["spellings"]:
                wanted = not options.only or idiom["name"] in options.only
                if wanted and f"{idiom['name']}/{spelling}" not in done:
                    row = kept.add(measure(idiom, spelling, options, Path(scratch)))
                    print(f"{row['name']}: {gain(row):.2f}", file=sys.stderr, flush=True)
    print(kept.about())
    print(table(kept.rows))
    return 0 if all(map(reached, kept.rows)) else 1


if __name__ == "__main__":
    sys.exit(main())
