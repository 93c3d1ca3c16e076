"""X-RLflow's tables: head to head at equal budgets, transfer to unseen models and shapes, ablations, gated winners.

    python reproduce/xrlflow/run.py --size small             in minutes on two free cores
    python reproduce/xrlflow/run.py --size medium            about 40 minutes of one core
    python reproduce/xrlflow/run.py --size full              at most twelve hours of CPU (an estimate: never run whole)
    python reproduce/xrlflow/run.py --size medium --stages search gate --models vit-base
    python reproduce/xrlflow/run.py --size medium --tables   prints the tables and draws the plot of what is there

Stages: `train` (an agent on four models, one fine-tuned on each model), `search` (equal expansions), `time` (equal
processor seconds), `ablation`, `gate` (every distinct winner of the CPU's landscape against the original, by the
clock). Each training, search and winner is a row of results/SIZE.jsonl; what the file has is not run again, so that an
interrupted run goes on. Agents are kept in build/xrlflow. Searches go by the analytic cost, on two rooflines: this
package's CPU, and a GPU on which launches count more than arithmetic.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [os.fspath(HERE), os.fspath(HERE.parent / "common")]

import machine  # from the folder "common"
import results
import tables  # from this folder
from results import Results
from rooflines import ROOFLINES, spec

from rlflow import search

AGENTS = machine.ROOT / "build" / "xrlflow"
#: What only the raw file keeps of a search.
BULKY = ("curve", "trace", "stop_reason")
STAGES = ("train", "search", "time", "ablation", "gate")
#: What an ablation changes about the preset `tuned`, and the rooflines it learns on.
ABLATIONS: dict[str, dict[str, str]] = {
    "delta": {},
    "meta-graph": {"policy.encoder": "meta-graph"},
    "no rule embedding": {"policy.rule_embedding": "false"},
    "no prior": {"policy.prior": "0"},
    "potential": {"reward": "potential"},
    "discount 0.995": {"gamma": "0.995"},
    "end-to-end every 5": {"reward": "end-to-end", "every": "5"},
}
BASELINES = ("random", "greedy", "backtracking:alpha=1", "backtracking", "eqsat", "mcts")


@dataclass(frozen=True)
class Size:
    """``learn``: models to learn on. ``seen``: models of these architectures, whole; ``unseen``: others;
    ``shapes``: seen ones in other shapes; ``fresh``: that no agent learnt on and nothing was tuned by;
    ``kin``: that no agent learnt on, but the shipped one on exercises made with their way in mind. ``steps``,
    ``fine_tune_steps``, ``ablation_steps``: of trainings; ``ablation_models``: what ablations learn and are judged
    on. ``tuned_on``: what stands for a model when the shipped agent is fine-tuned on it, where that is not the
    model itself. ``expansions``, ``seconds``: the two budgets. ``train_seeds``: agents.
    """

    learn: tuple[str, ...]
    seen: tuple[str, ...]
    unseen: tuple[str, ...]
    shapes: tuple[str, ...]
    steps: int
    fine_tune_steps: int
    ablation_steps: int
    ablation_models: tuple[str, ...]
    seeds: int
    fresh: tuple[str, ...] = ()
    kin: tuple[str, ...] = ()
    train_seeds: int = 1
    expansions: str = "100x"
    tuned_on: tuple[tuple[str, str], ...] = ()
    seconds: str = "3s"
    gate_seconds: float = 20.0

    @property
    def models(self) -> tuple[str, ...]:
        return (*self.seen, *self.unseen)


SIZES = {
    "small": Size(
        learn=("squeezenet1.1", "bert-base?layers=2&seq=64"),
        seen=("squeezenet1.1", "bert-base?layers=2"),
        unseen=("vit-base?layers=2",),
        shapes=("squeezenet1.1?image=160",),
        steps=2000,
        fine_tune_steps=300,
        ablation_steps=300,
        ablation_models=("squeezenet1.1",),
        seeds=1,
        seconds="2s",
        gate_seconds=10.0,
    ),
    "medium": Size(
        learn=("squeezenet1.1", "resnext-50", "vit-base?layers=2", "dalle-decoder?layers=2"),
        seen=("squeezenet1.1", "resnext-50", "vit-base", "dalle-decoder"),
        unseen=("inception-v3", "bert-base", "transducer"),
        shapes=("squeezenet1.1?image=160", "vit-base?image=160", "resnext-50?image=160", "dalle-decoder?text=64"),
        steps=15_000,
        fine_tune_steps=1500,
        ablation_steps=1200,
        ablation_models=("vit-base?layers=1",),
        seeds=3,
        fresh=("nasrnn",),
        kin=("taso/bert",),
        gate_seconds=3.0,
        tuned_on=(
            ("vit-base", "vit-base?layers=2"),
            ("bert-base", "bert-base?layers=2"),
            ("dalle-decoder", "dalle-decoder?layers=2"),
            ("transducer", "transducer?audio_layers=2"),
        ),
    ),
    "full": Size(
        learn=("squeezenet1.1", "resnext-50", "vit-base", "dalle-decoder"),
        seen=("squeezenet1.1", "resnext-50", "vit-base", "dalle-decoder"),
        unseen=("inception-v3", "bert-base", "transducer"),
        shapes=("squeezenet1.1?image=160", "vit-base?image=160", "resnext-50?image=160", "dalle-decoder?text=64"),
        steps=100_000,
        fine_tune_steps=5_000,
        ablation_steps=20_000,
        ablation_models=("vit-base?layers=2", "squeezenet1.1"),
        seeds=3,
        train_seeds=3,
        seconds="60s",
        gate_seconds=60.0,
    ),
}


class Rows(Results):
    """The results file; several processes may add to it, stage by stage."""

    def show(self, row: dict[str, Any]) -> None:
        figures = " ".join(f"{name} {row[name]:.4f}" for name in ("gain", "score", "speedup") if row.get(name))
        print(row["key"], figures, f"{row['seconds']:.1f} s", file=sys.stderr, flush=True)


# --- training ---------------------------------------------------------------------------------------------------------


def agent_path(rows: Rows, name: str, seed: int) -> Path:
    plain = "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in name)
    return AGENTS / f"{rows.path.stem}-{plain}-{seed}.npz"


def train(rows: Rows, name: str, models: tuple[str, ...], options: dict[str, str], steps: int, seed: int,
          start: Path | None = None, rooflines: tuple[str, ...] = ("cpu", "gpu")) -> Path:  # fmt: skip
    """An agent, trained unless it is there; a training that was cut off is resumed."""
    import torch

    from rlflow.agents.xrlflow.config import preset
    from rlflow.agents.xrlflow.ppo import Trainer
    from rlflow.agents.xrlflow.trained import PolicyCheckpoint

    path = agent_path(rows, name, seed)
    key = f"train/{name}/{seed}"
    if rows.have(key) and path.exists():
        return path
    torch.set_num_threads(1)
    begun = path.with_name(path.name + ".last").exists()
    # What was shown its detours is fine-tuned at the rate of its own play; at a higher one it forgets them.
    config = preset("tuned") if start is None else dataclasses.replace(preset("taught"), rounds=0, episodes=16)
    trainer = Trainer(
        [spec(model, roofline) for model in models for roofline in rooflines],
        config.with_options(options),
        out=path,
        seed=seed,
        resume=begun,
        start=None if start is None or begun else PolicyCheckpoint.load(start),
        evaluate_every=5,
        logs=AGENTS / "logs" / path.stem,
    )
    card = trainer.train(steps).card
    if not rows.have(key):
        figures = {figure: card[figure] for figure in ("steps", "episodes", "updates", "seconds", "score")}
        rows.add({
            "kind": "train", "key": key, "name": name, "seed": seed, "models": models, "rooflines": rooflines,
            "options": options, "start": None if start is None else start.name, **figures,
        })  # fmt: skip
    return path


def trainings(rows: Rows, size: Size, models: tuple[str, ...]) -> None:
    """The agents of four models, and the shipped one fine-tuned on each model."""
    from rlflow.agents.xrlflow.trained import SHIPPED

    for seed in range(size.train_seeds):
        train(rows, "agent", size.learn, {}, size.steps, seed)
        for model in models:
            like = dict(size.tuned_on).get(model, model)
            train(rows, f"fine-tuned {model}", (like,), {}, size.fine_tune_steps, seed, start=SHIPPED)


# --- searching --------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def opened(model: str, roofline: str) -> Any:
    """The model, read once for all the searches of it."""
    return spec(model, roofline).load()


def searched(rows: Rows, label: str, strategy: str, model: str, roofline: str, budget: str, seed: int) -> None:
    """One search by the analytic cost; seconds are the processor's."""
    key = f"search/{roofline}/{budget}/{model}/{label}/{seed}"
    if rows.have(key):
        return
    if strategy.startswith("xrlflow"):
        import torch  # not to be counted

        torch.set_num_threads(1)
    problem = opened(model, roofline).problem(budget, seed=seed, clock=time.process_time)
    result = search.solve(problem, strategy)
    found = result.to_dict()
    curve = [[point.expansions, round(point.seconds, 3), point.cost_ms] for point in result.curve]
    rows.add(
        {
            "kind": "search", "key": key, "model": model, "label": label, "seed": seed,
            "budget": budget, "roofline": roofline, "gain": result.cost_before_ms / result.cost_after_ms - 1,
            "digest": found["digest"], "expansions": result.counts.expansions,
            "stop_reason": str(result.stop_reason), "seconds": result.seconds,
            "at": {str(n): tables.gain_at(curve, n) for n in tables.BUDGETS},
            "curve": curve,
            "trace": [[step["rule"], step["match"]] for step in found["trace"]]
            if found["trace"] is not None and roofline == "cpu" and model in SIZES[rows.path.stem].models else None,
        }
    )  # fmt: skip


def strategies(rows: Rows, size: Size, model: str) -> dict[str, str]:
    """Label to specification; agents that were not trained yet are left out."""
    found = {name: name for name in BASELINES}
    found |= {"xrlflow, shipped": "xrlflow", "xrlflow-mcts, shipped": "xrlflow-mcts"}
    for label, name in (("four models", "agent"), ("fine-tuned", f"fine-tuned {model}")):
        path = agent_path(rows, name, 0)
        if rows.have(f"train/{name}/0") and path.exists():
            found |= {f"{kind}, {label}": f"{kind}:checkpoint={path}" for kind in ("xrlflow", "xrlflow-mcts")}
    return found


def searches(rows: Rows, size: Size, models: tuple[str, ...], budget: str, options: argparse.Namespace) -> None:
    """Every strategy; those that draw no random numbers once."""
    for model in models:
        for roofline in options.rooflines:
            for label, strategy in strategies(rows, size, model).items():
                if (options.labels and label not in options.labels) or (model in size.shapes and "shipped" in label):
                    continue
                drawn = getattr(search.make(strategy), "randomised", True)
                for seed in range(size.seeds if drawn else 1):
                    searched(rows, label, strategy, model, roofline, budget, seed)


def ablations(rows: Rows, size: Size, labels: list[str] | None) -> None:
    """Each trained alike, then judged by its own likeliest walk alone, on both rooflines."""
    for name, options in ABLATIONS.items():
        if labels and f"ablation {name}" not in labels:
            continue
        clock = "end-to-end" in name
        models = ("squeezenet1.1",) if clock else size.ablation_models
        steps = size.ablation_steps // 10 if clock else size.ablation_steps
        rooflines = ("cpu",) if clock else ("cpu", "gpu")
        path = train(rows, f"ablation {name}", models, options, steps, 0, rooflines=rooflines)
        for model in models:
            for roofline in rooflines:
                own = f"xrlflow:decode=greedy,descent=false,checkpoint={path}"
                searched(rows, f"ablation {name}", own, model, roofline, size.expansions, 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--stages", nargs="*", choices=STAGES, default=STAGES, metavar="STAGE")
    parser.add_argument("--models", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--rooflines", nargs="*", choices=ROOFLINES, default=list(ROOFLINES), metavar="NAME")
    parser.add_argument("--labels", nargs="*", metavar="LABEL", help="only these columns: greedy, 'ablation delta'")
    parser.add_argument("--tables", action="store_true", help="only print the tables of the results that are there")
    results.add_options(parser)
    options = parser.parse_args()
    size = SIZES[options.size]
    rows = Rows(
        HERE / "results" / f"{options.size}.jsonl",
        ["python", "reproduce/xrlflow/run.py", "--size", options.size],
        resume=True,
        dirty=options.dirty or options.tables,  # which measures nothing
        bulky=BULKY,
        shared=True,
    )
    if not options.tables:
        run(rows, size, options)
    text = "\n".join([rows.about(), *tables.tables(rows.rows, size)]) + "\n"
    (rows.path.with_name(f"{options.size}.md")).write_text(text, encoding="utf-8")
    tables.plot(rows.rows, size, rows.path.with_name(f"{options.size}-expansions.png"))
    print(text)
    return 0


def run(rows: Rows, size: Size, options: argparse.Namespace) -> None:
    """The stages asked for; whatever the file lacks."""
    models = tuple(model for model in size.models if not options.models or model in options.models)
    others = (*size.shapes, *size.fresh, *size.kin)
    shapes = tuple(model for model in others if not options.models or model in options.models)
    if "train" in options.stages:
        trainings(rows, size, models)
    if "search" in options.stages:
        searches(rows, size, (*models, *shapes), size.expansions, options)
    if "time" in options.stages:
        searches(rows, size, models, size.seconds, options)
    if "ablation" in options.stages:
        ablations(rows, size, options.labels)
    if "gate" in options.stages:
        import gated

        for model in models:
            gated.winners(rows, model, size.gate_seconds, options.labels)


if __name__ == "__main__":
    sys.exit(main())
