"""Whole models and a user's ten seconds: is a learned search, in half the time, level with the portfolio?

    python reproduce/learning/wholes.py --unet FILE [--resume] [--models NAME ...] [--seeds 3]
    python reproduce/learning/wholes.py --tables

BERT-base and a step of LLaMA are of the zoo; FILE is a diffusion UNet that reproduce/exports/export.py wrote
(``diffusion_unet``). None of them was trained on as a whole. Searches without learning have ten CPU seconds, learned
ones and their doubles five. The cost is the analytic one of a CPU. A search that draws runs once a seed.

Rows: results/wholes.jsonl.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "common")]

import results  # from the folder "common"
import run  # from this folder

from rlflow import frontends, price, zoo

OUT = HERE / "results" / "wholes.jsonl"
MODELS = ("bert-base", "llama-decoder-step", "diffusion_unet")
#: Budgets: of who learnt nothing, and of who did.
WHOLE, HALF = "10s", "5s"
ENTRANTS = (
    "greedy", "backtracking", "beam", "mcts", "portfolio", "mixed", "xrlflow", "xrlflow untrained", "rlflow",
    "rlflow untrained", "rlflow no model", "mixed and xrlflow", "mixed and xrlflow untrained", "levin",
    "levin untrained", "mixed and levin", "mixed and levin untrained",
)  # fmt: skip
#: Whom the learned searches are to be level with.
BAR = "portfolio"


def graph_of(name: str, unet: Path | None) -> Any:
    """The graph of a model; ``None`` for the UNet where no file was given."""
    if name in zoo.names():
        return frontends.load_model(zoo.build(name)).graph
    return None if unet is None else frontends.load_model(unet).graph


def play(kept: run.Rows, models: Sequence[str], unet: Path | None, seeds: int) -> None:
    """All searches that the file does not have yet."""
    from entrants import entrants

    known = [one for one in entrants(run.WEIGHTS, seeds) if one.name in ENTRANTS]
    for name in models:
        graph = graph_of(name, unet)
        if graph is None:
            print(f"{name}: left out, because --unet names no file.", file=sys.stderr)
            continue
        for seed in range(seeds):
            for one in (one for one in known if seed in run.seeds_of(one, seeds)):
                budget = WHOLE if one.role == "without" else HALF
                key = f"{name}/{one.name}/{budget}/{seed}"
                if not kept.have(key):
                    about = {"model": name, "name": one.name, "role": one.role, "of": one.of, "budget": budget}
                    row = run.searched(graph, one.at(seed), price.make("analytic"), budget, seed)
                    kept.add({"kind": "search", "key": key, **about, "seed": seed, **row})


def lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Gains in per cent, means over the seeds, a line at a time."""
    models = [name for name in MODELS if any(row["model"] == name for row in rows)]
    yield from results.heading("search", "seconds", *(f"`{name}`" for name in models))
    means: dict[tuple[str, str], float] = {}
    for name in ENTRANTS:
        mine = [row for row in rows if row["name"] == name]
        cells = []
        for model in models:
            gains = [row["gain"] for row in mine if row["model"] == model]
            cells.append(_cell(gains))
            if gains:
                means[model, name] = statistics.fmean(gains)
        if mine:
            yield f"| `{name}` | {mine[0]['budget'].removesuffix('s')} | {' | '.join(cells)} |"
    yield ""
    for name in dict.fromkeys(row["name"] for row in rows if row["role"] == "learned"):
        level = [m for m in models if means.get((m, name), -1.0) >= 0.999 * means.get((m, BAR), float("inf"))]
        yield f"`{name}`, in half the time: level with `{BAR}` on {len(level)} of {len(models)}."


def _cell(gains: Sequence[float]) -> str:
    if not gains:
        return ""
    spread = f" ± {(max(gains) - min(gains)) / 2:.2f}" if max(gains) - min(gains) >= 0.01 else ""
    return f"{statistics.fmean(gains):.2f}{spread}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=MODELS, metavar="NAME", default=MODELS)
    parser.add_argument("--unet", type=Path, metavar="FILE", help="the exported UNet")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=OUT, help="file of the rows")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the file has")
    parser.add_argument("--tables", action="store_true", help="only print the table of what is there")
    results.add_options(parser)
    options = parser.parse_args()
    if options.tables:
        rows, machines = results.read(options.out)
        print("\n".join([*results.about(rows, machines), *lines(rows)]))
        return 0
    command = ["python", "reproduce/learning/wholes.py"]
    kept = run.Rows(options.out, command, resume=options.resume, dirty=options.dirty)
    play(kept, options.models, options.unet, options.seeds)
    print("\n".join([kept.about(), *lines(kept.rows)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
