"""A small version of the tables, one after the other, in under 25 minutes on two cores.

    python reproduce/quick.py [--only NAME ...] [--into build/reproduce] [--list] [--dirty]

Each part writes its rows and its log into the folder; the results in the repository stay as they are. Parts that need
files of other projects are left out, and named, where these are not there (make fetch-data). Exit code 1 where a part
failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "shared" / "data"


@dataclass(frozen=True)
class Part:
    """``arguments``: with ``{out}`` for the file or folder of the rows. ``minutes``: about, on two cores. ``bars``: the
    script ends with 1 where a bar of the whole table is missed, which a small one may.
    """

    name: str
    arguments: tuple[str, ...]
    minutes: float
    needs: str | None = None
    bars: bool = False


PARTS = (
    Part("micro", ("--seconds", "1", "--json", "{out}.jsonl"), 3, bars=True),
    Part("output_check", ("--walks", "40", "--out", "{out}.jsonl"), 2),
    Part("rule_sets", ("--models", "squeezenet1.1", "--seconds", "10", "--out", "{out}.jsonl"), 2),
    Part("search_toys", ("--search", "greedy,beam,backtracking,mcts", "--seeds", "2", "--out", "{out}.jsonl"), 2),
    Part("strategies", ("--models", "squeezenet1.1", "--search", "greedy,backtracking", "--budget", "50x", "--seeds",
                        "1", "--results", "{out}"), 1),
    Part("kernels", ("--only", "shapes", "--shape-seconds", "0.5", "--output", "{out}.jsonl"), 1),
    Part("foundation", ("--models", "nasrnn", "squeezenet1.1", "llama-decoder-step", "--budget", "20s",
                        "--out", "{out}.jsonl"), 3, bars=True),
    Part("taso", ("--models", "nasrnn", "--seconds", "20", "--out", "{out}"), 2),
    Part("eqsat", ("--data", str(DATA), "--only", "vgg", "--seconds", "20", "--json", "{out}.jsonl"), 2,
         needs="tensat_converted.txt"),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[one.name for one in PARTS], choices=[one.name for one in PARTS])
    parser.add_argument("--into", type=Path, default=HERE.parent / "build" / "reproduce")
    parser.add_argument("--list", action="store_true", help="say what would run")
    parser.add_argument("--dirty", action="store_true", help="allow uncommitted changes; the tables say so")
    given = parser.parse_args()
    parts = [one for one in PARTS if one.name in given.only]
    if given.list:
        for one in parts:
            print(f"{one.name}: {' '.join(command(one, given.into, given.dirty)[1:])}   (about {one.minutes} minutes)")
        return 0
    given.into.mkdir(parents=True, exist_ok=True)
    return 1 if [one.name for one in parts if not done(one, given.into, given.dirty)] else 0


def command(part: Part, into: Path, dirty: bool) -> list[str]:
    """What is run for a part."""
    arguments = [one.format(out=into / part.name) for one in part.arguments]
    return [sys.executable, str(HERE / part.name / "run.py"), *arguments, *(["--dirty"] if dirty else [])]


def done(part: Part, into: Path, dirty: bool) -> bool:
    """Run a part, and say how it went; whether that was well."""
    if part.needs is not None and not (DATA / part.needs).exists():
        print(f"{part.name}: left out, because {DATA / part.needs} is not there (make fetch-data)", flush=True)
        return True
    log, began = into / f"{part.name}.log", time.monotonic()
    with open(log, "w", encoding="utf-8") as stream:
        status = subprocess.run(command(part, into, dirty), stdout=stream, stderr=subprocess.STDOUT).returncode
    well = status == 0 or (status == 1 and part.bars)
    verdict = "done" if status == 0 else "done, a bar was missed" if well else f"FAILED with status {status}"
    print(f"{part.name}: {verdict}, {(time.monotonic() - began) / 60:.1f} minutes, {log}", flush=True)
    return well


if __name__ == "__main__":
    sys.exit(main())
