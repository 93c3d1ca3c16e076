"""A small version of the tables, one after the other, in under 25 minutes on two cores.

    python reproduce/quick.py [--only NAME ...] [--into build/reproduce] [--list] [--dirty]

Each part writes its rows and its log into the folder; the results in the repository stay as they are. Parts that need
files of other projects are left out, and named, where these are not there (make fetch-data). A part that takes far
longer than it should is stopped, and counts as failed. Exit code 1 where a part failed, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "shared" / "data"
#: A part is stopped after so many times what it takes on an idle machine, and not before so many minutes.
SLOWEST, LEAST = 6.0, 6.0


@dataclass(frozen=True)
class Part:
    """``arguments``: with ``{out}`` for the file or folder of the rows. ``minutes``: about, on one idle core. ``bars``:
    the script ends with 1 where a bar of the whole table is missed, which a small one may.
    """

    name: str
    arguments: tuple[str, ...]
    minutes: float
    needs: str | None = None
    bars: bool = False

    @property
    def limit(self) -> float:
        """The minutes after which it is stopped."""
        return max(LEAST, SLOWEST * self.minutes)


PARTS = (
    Part("micro", ("--seconds", "1", "--json", "{out}.jsonl"), 1, bars=True),
    Part("output_check", ("--walks", "40", "--out", "{out}.jsonl"), 1),
    Part("rule_sets", ("--models", "squeezenet1.1", "--seconds", "10", "--out", "{out}.jsonl"), 0.5),
    Part("search_toys", ("--search", "greedy,beam,backtracking,mcts", "--seeds", "2", "--out", "{out}.jsonl"), 0.5),
    Part("strategies", ("--models", "squeezenet1.1", "--search", "greedy,backtracking", "--budget", "50x", "--seeds",
                        "1", "--results", "{out}"), 0.5),
    Part("kernels", ("--only", "shapes", "--shape-seconds", "0.5", "--output", "{out}.jsonl"), 0.5),
    Part("foundation", ("--models", "nasrnn", "squeezenet1.1", "llama-decoder-step", "--budget", "20s",
                        "--out", "{out}.jsonl"), 1.5, bars=True),
    Part("taso", ("--models", "nasrnn", "--seconds", "20", "--out", "{out}"), 1),
    Part("eqsat", ("--data", str(DATA), "--only", "vgg", "--seconds", "20", "--json", "{out}.jsonl"), 1,
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
    began = time.monotonic()
    try:
        failed = [one.name for one in parts if not done(one, given.into, given.dirty)]
    except KeyboardInterrupt:
        print("\nstopped; what was done is kept, and --only NAME … runs the other parts", file=sys.stderr)
        return 130
    took = (time.monotonic() - began) / 60
    verdict = f"{len(failed)} of {len(parts)} parts failed: {', '.join(failed)}" if failed else "no part failed"
    print(f"{verdict}, {took:.1f} minutes; the rows and logs are in {given.into}", flush=True)
    return 1 if failed else 0


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
    print(f"{part.name}: about {part.minutes:g} minutes on an idle core …", flush=True)
    status = status_of(command(part, into, dirty), log, part.limit)
    well = status == 0 or (status == 1 and part.bars)
    verdict = "done" if status == 0 else "done, a bar was missed" if well else f"FAILED {because(status, part)}"
    print(f"{part.name}: {verdict}, {(time.monotonic() - began) / 60:.1f} minutes, {log}", flush=True)
    return well


def status_of(arguments: list[str], log: Path, minutes: float) -> int | None:
    """The exit status of a command whose output goes into a file; ``None`` where it was stopped after its minutes.

    It and all that it started are ended then, and when this script is.
    """
    with open(log, "w", encoding="utf-8") as stream:
        running = subprocess.Popen(arguments, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return running.wait(minutes * 60)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if running.returncode is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()


def because(status: int | None, part: Part) -> str:
    """Why a part failed."""
    return f"with status {status}" if status is not None else f"(stopped after {part.limit:g} minutes)"


if __name__ == "__main__":
    sys.exit(main())
