"""X-RLflow's tables: head to head at equal budgets, transfer to unseen models and shapes, ablations.

    python reproduce/xrlflow/run.py --size small               about ten minutes on two free cores
    python reproduce/xrlflow/run.py --size full                at most twelve hours of CPU
    python reproduce/xrlflow/run.py --size full --end-to-end   searches by measured prices, confirmed by the clock
    python reproduce/xrlflow/run.py --size small --tables      prints the tables of what is there
    python reproduce/xrlflow/run.py --size small --roofline gpu   the analytic cost of a GPU

Every training and every search is a row of results/SIZE.jsonl; what the file has is not run again, so that an
interrupted run goes on (SIZE-gpu.jsonl for the GPU's roofline, where launches count more than arithmetic). Agents are
kept in build/xrlflow. Costs are the analytic model's unless said otherwise.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1]))

import machine

from rlflow import search
from rlflow.env import ProblemSpec

HERE = Path(__file__).resolve().parent
AGENTS = machine.ROOT / "build" / "xrlflow"
#: What each ablation changes about the preset `tuned`; `end-to-end` runs models, so it is trained on the smallest one.
ABLATIONS = {
    "delta": {},
    "meta-graph": {"policy.encoder": "meta-graph"},
    "no rule embedding": {"policy.rule_embedding": "false"},
    "no prior": {"policy.prior": "0"},
    "potential": {"reward": "potential"},
    "end-to-end every 5": {"reward": "end-to-end", "every": "5"},
}
#: Options of the analytic cost. The GPU is a mid-range one of 2020: 15 TFLOP/s, 1.4 TB/s, 4 us a launch.
ROOFLINES: dict[str, dict[str, float]] = {
    "cpu": {},
    "gpu": {"gflops": 15000.0, "vector_gflops": 5000.0, "gbps": 1400.0, "overhead_us": 4.0, "view_us": 0.0},
}
BASELINES = ("random", "greedy", "backtracking:alpha=1", "backtracking")
#: Run where another package registers them.
OPTIONAL = ("eqsat", "mcts")


@dataclass(frozen=True)
class Size:
    """``trained``: models to learn on here; ``unseen``: others; ``shapes``: trained models in shapes that were not.
    ``steps``: of the agent's training and of each ablation's; ``budget``: of each search.
    """

    trained: tuple[str, ...]
    unseen: tuple[str, ...]
    shapes: tuple[str, ...]
    steps: int
    ablation_steps: int
    ablation_models: tuple[str, ...]
    seeds: int
    budget: str
    fine_tune_steps: int


SIZES = {
    "small": Size(
        trained=("squeezenet1.1", "resnet-18", "llama-decoder-step", "bert-base?layers=2&seq=64"),
        unseen=("fpn-resnet18", "unet", "vit-base?layers=2"),
        shapes=("squeezenet1.1?image=160", "bert-base?layers=3&seq=256"),
        steps=4000,
        ablation_steps=600,
        ablation_models=("squeezenet1.1",),
        seeds=1,
        budget="100x",
        fine_tune_steps=600,
    ),
    "full": Size(
        trained=("squeezenet1.1", "resnext-50", "bert-base", "dalle-decoder"),
        unseen=("inception-v3", "vit-base", "transducer"),
        shapes=("squeezenet1.1?image=160", "bert-base?seq=384", "resnext-50?image=160", "dalle-decoder?text=64"),
        steps=100_000,
        ablation_steps=20_000,
        ablation_models=("squeezenet1.1", "bert-base"),
        seeds=3,
        budget="100x",
        fine_tune_steps=5_000,
    ),
}


class Rows:
    """The results file: rows by key, written after each one."""

    def __init__(self, path: Path, command: list[str], roofline: str = "cpu") -> None:
        self.path, self.roofline = path, roofline
        self.rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self.rows = self.rows or [machine.header(command)]

    def have(self, key: str) -> bool:
        return any(row.get("key") == key for row in self.rows)

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        machine.write_jsonl(self.path, self.rows)
        print(row["key"], f"{row.get('gain', row.get('score', 0)):.4f}", f"{row['seconds']:.0f} s", file=sys.stderr)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["kind"] == kind]


# --- what is run ------------------------------------------------------------------------------------------------------


def train(rows: Rows, name: str, models: tuple[str, ...], options: dict[str, str], steps: int, seed: int,
          start: Path | None = None) -> Path:  # fmt: skip
    """An agent, trained unless it is there; a training that was cut off is resumed."""
    import torch

    from rlflow.agents.checkpoint import Checkpoint
    from rlflow.agents.config import preset
    from rlflow.agents.xrlflow import Trainer

    torch.set_num_threads(1)
    path = AGENTS / f"{rows.path.stem}-{name.replace(' ', '-').replace('?', '-')}-{seed}.npz"
    key = f"train/{name}/{seed}"
    if rows.have(key) and path.exists():
        return path
    begun = path.with_name(path.name + ".last").exists()
    trainer = Trainer(
        [_spec(model, rows.roofline) for model in models],
        preset("tuned").with_options(options),
        out=path,
        seed=seed,
        resume=begun,
        start=None if start is None or begun else Checkpoint.load(start),
        logs=AGENTS / "logs" / path.stem,
    )
    card = trainer.train(steps).card
    if not rows.have(key):
        rows.add({"kind": "train", "key": key, "name": name, "seed": seed, "models": models, **_short(card)})
    return path


def _short(card: dict[str, Any]) -> dict[str, Any]:
    return {name: card[name] for name in ("steps", "episodes", "updates", "seconds", "score")}


@functools.lru_cache(maxsize=2)
def opened(model: str, roofline: str) -> Any:
    """The model, read once for all the searches of it."""
    return _spec(model, roofline).load()


def _spec(model: str, roofline: str) -> ProblemSpec:
    return ProblemSpec.of(model, None, "analytic", ROOFLINES[roofline])


def searched(rows: Rows, label: str, strategy: str, model: str, size: Size, seed: int) -> None:
    """One search at the size's budget, by the analytic cost."""
    key = f"search/{model}/{label}/{seed}"
    if rows.have(key):
        return
    begun = time.monotonic()
    loaded = opened(model, rows.roofline)
    ready = time.monotonic()
    result = search.solve(loaded.problem(size.budget, seed=seed), strategy)
    rows.add(
        {
            "kind": "search", "key": key, "model": model, "label": label, "seed": seed, "budget": size.budget,
            "gain": result.cost_before_ms / result.cost_after_ms - 1, "expansions": result.counts.expansions,
            "stop_reason": str(result.stop_reason), "seconds": time.monotonic() - ready, "loading": ready - begun,
            "curve": [[point.expansions, point.cost_ms] for point in result.curve],
        }
    )  # fmt: skip


def end_to_end(rows: Rows, label: str, strategy: str, model: str, seed: int, budget: str) -> None:
    """The whole way by measured prices: search, race against the original, comparison of outputs."""
    import rlflow
    from rlflow import zoo

    key = f"end-to-end/{model}/{label}/{seed}"
    if rows.have(key):
        return
    name, _, query = model.partition("?")
    options = {pair.split("=")[0]: int(pair.split("=")[1]) for pair in query.split("&") if pair}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(zoo.build(name, **options).SerializeToString())
        report = rlflow.optimize(path, search=strategy, budget=budget, seed=seed).report
    rows.add(
        {
            "kind": "end-to-end", "key": key, "model": model, "label": label, "seed": seed, "budget": budget,
            "gain": report.speedup - 1, "ci95": report.speedup_ci95, "improved": report.improved,
            "seconds": time.monotonic() - begun,
        }
    )  # fmt: skip


def strategies(agent: Path | None) -> dict[str, str]:
    """Label to specification."""
    found = {name: name for name in BASELINES}
    found |= {name: name for name in OPTIONAL if name in search.names() and search.unavailable(name) is None}
    found |= {"xrlflow, shipped": "xrlflow", "xrlflow, shipped, policy alone": "xrlflow:descent=false"}
    return found if agent is None else {**found, "xrlflow, trained here": f"xrlflow:checkpoint={agent}"}


def run(rows: Rows, size: Size, measured: bool, training: bool) -> None:
    """Everything that the file lacks."""
    for seed in range(size.seeds):
        agent = train(rows, "agent", size.trained, {}, size.steps, seed) if training else None
        for model in (*size.trained, *size.unseen, *size.shapes):
            for label, strategy in strategies(agent).items():
                if measured:
                    end_to_end(rows, label, strategy, model, seed, "60s")
                else:
                    searched(rows, label, strategy, model, size, seed)
        if measured or agent is None:
            continue
        for model in size.unseen:
            tuned = train(rows, f"fine-tuned {model}", (model,), {}, size.fine_tune_steps, seed, start=agent)
            searched(rows, "xrlflow, fine-tuned", f"xrlflow:checkpoint={tuned}", model, size, seed)
        for name, options in ABLATIONS.items():
            models = size.ablation_models[:1] if "end-to-end" in name else size.ablation_models
            path = train(rows, f"ablation {name}", models, options, size.ablation_steps, seed)
            for model in models:
                searched(rows, f"ablation {name}", f"xrlflow:checkpoint={path}", model, size, seed)


# --- what is printed --------------------------------------------------------------------------------------------------


def mean_ci(values: list[float]) -> str:
    """Mean gain in per cent, with half the 95 % interval (Student's t) from three values on."""
    mean = 100 * statistics.mean(values)
    if len(values) < 3 or len(set(values)) == 1:
        return f"{mean:.2f}"
    t = {3: 4.30, 4: 3.18, 5: 2.78}.get(len(values), 2.26)
    return f"{mean:.2f} ± {100 * t * statistics.stdev(values) / math.sqrt(len(values)):.2f}"


def gains(found: list[dict[str, Any]], model: str, label: str) -> list[float]:
    return [row["gain"] for row in found if row["model"] == model and row["label"] == label]


def tables(rows: Rows, size: Size) -> Iterator[str]:
    """Markdown, from the rows alone."""
    for kind, title in (("search", f"Gain in %, {size.budget}"), ("end-to-end", "Gain in % by the clock, 60 s")):
        found = [row for row in rows.of(kind) if not row["label"].startswith("ablation")]
        if found:
            yield from head_to_head(found, size, title)
    searches = rows.of("search")
    if searches:
        yield from transfer(searches, size)
        yield from ablations(rows)
    yield from ("", "| training | seed | steps | episodes | s | score |", "|---|--:|--:|--:|--:|--:|")
    for row in rows.of("train"):
        yield (
            f"| {row['name']} | {row['seed']} | {row['steps']} | {row['episodes']} | {row['seconds']:.0f} "
            f"| {row['score']:.4f} |"
        )


def seen_by_shipped() -> set[str]:
    """What the shipped agent was trained on, by its card and those of the agents that it began with."""
    from rlflow.agents.checkpoint import Checkpoint, shipped

    card: dict[str, Any] | None = Checkpoint.load(shipped()).card
    found: set[str] = set()
    while card:
        found |= set(card["models"])
        card = card.get("start")
    return found


def bare(models: set[str]) -> set[str]:
    """Names without options."""
    return {model.split("?")[0] for model in models}


def head_to_head(found: list[dict[str, Any]], size: Size, title: str) -> Iterator[str]:
    labels = list(dict.fromkeys(row["label"] for row in found))
    known = seen_by_shipped()
    heading = f"| {title} | shipped agent | {' | '.join(labels)} | best not learned |"
    yield from ("", heading, "|---" * (len(labels) + 3) + "|")
    wins = {label: [0, 0] for label in labels if label.startswith("xrlflow")}
    for group in ("trained", "unseen", "shapes"):
        for model in getattr(size, group):
            cells = {label: gains(found, model, label) for label in labels}
            others = [statistics.mean(cells[label]) for label in labels if label not in wins and cells[label]]
            if not others:
                continue
            best = max(others)
            for label, count in wins.items():
                mine = statistics.mean(cells[label]) if cells[label] else -1.0
                count[0] += mine >= best * (1 - 1e-6)
                count[1] += mine > best * (1 + 1e-3)
            shown = " | ".join(mean_ci(cells[label]) if cells[label] else "" for label in labels)
            met = "saw it" if model in known else "saw other shapes" if model.split("?")[0] in bare(known) else "never"
            yield f"| {model} ({group}) | {met} | {shown} | {100 * best:.2f} |"
    for label, (level, above) in wins.items():
        yield f"\n{label}: at least the best not learned on {level}, above it by a thousandth of the gain on {above}."


def transfer(found: list[dict[str, Any]], size: Size) -> Iterator[str]:
    """Part of the best gain that anything here found on the model."""
    present = dict.fromkeys(row["label"] for row in found)
    labels = [name for name in present if name.startswith("xrlflow") or name in ("random", "greedy", "backtracking")]
    yield from (
        "",
        f"| part of the best-known gain, {size.budget} | {' | '.join(labels)} |",
        "|---" * (len(labels) + 1) + "|",
    )
    for model in (*size.unseen, *size.shapes):
        best = max((row["gain"] for row in found if row["model"] == model), default=0.0)
        cells = [gains(found, model, label) for label in labels]
        if best > 0 and all(cells):
            yield f"| {model} | {' | '.join(f'{statistics.mean(cell) / best:.0%}' for cell in cells)} |"


def ablations(rows: Rows) -> Iterator[str]:
    found = [row for row in rows.of("search") if row["label"].startswith("ablation")]
    trained = {row["name"]: row for row in rows.of("train")}
    yield from ("", "| ablation | model | gain in % | steps | training, s |", "|---|---|--:|--:|--:|")
    for label in dict.fromkeys(row["label"] for row in found):
        for model in dict.fromkeys(row["model"] for row in found if row["label"] == label):
            one = trained[label]
            cell = mean_ci(gains(found, model, label))
            yield f"| {label[9:]} | {model} | {cell} | {one['steps']} | {one['seconds']:.0f} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--end-to-end", action="store_true", help="search by measured prices and confirm by the clock")
    parser.add_argument("--shipped", action="store_true", help="train nothing: only the checkpoint that ships")
    parser.add_argument("--tables", action="store_true", help="only print the tables of the results that are there")
    parser.add_argument("--roofline", choices=ROOFLINES, default="cpu", help="of which machine the analytic cost is")
    parser.add_argument("--out", type=Path, help="results file (default: results/SIZE.jsonl)")
    options = parser.parse_args()
    if options.end_to_end and options.roofline != "cpu":
        parser.error("--end-to-end measures here; --roofline is for the analytic cost")
    name = options.size if options.roofline == "cpu" else f"{options.size}-{options.roofline}"
    path = options.out or HERE / "results" / f"{name}.jsonl"
    command = ["python", "reproduce/xrlflow/run.py", "--size", options.size, "--roofline", options.roofline]
    rows = Rows(path, command, options.roofline)
    size = SIZES[options.size]
    if not options.tables:
        run(rows, size, options.end_to_end, not options.shipped)
    print(machine.describe(rows.rows[0]))
    print("\n".join(tables(rows, size)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
