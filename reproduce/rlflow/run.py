"""RLFlow's tables: sample efficiency, step times, the paper's studies, and the searches side by side.

    python reproduce/rlflow/run.py --stage efficiency      real expansions to 90 % of the best-known gain
    python reproduce/rlflow/run.py --stage steps           a dream's step against the engine's, analytic and end to end
    python reproduce/rlflow/run.py --stage temperatures    τ from 0.1 to 3.0
    python reproduce/rlflow/run.py --stage rewards         the reward functions
    python reproduce/rlflow/run.py --stage controllers     PPO, CMA-ES and a variational encoder, and untrained ones
    python reproduce/rlflow/run.py --stage searches        the searches, at equal CPU seconds
    python reproduce/rlflow/run.py --stage tables          only prints the tables of what is there, and draws the curves

`--size small` (default) runs in minutes a stage on one core, `--size full` is the setting of the paper's models and
takes days. Every run is a row of results/SIZE.jsonl; what the file has is not run again, so that an interrupted
run goes on. Costs are the analytic model's unless said otherwise.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1] / "common"))

import results
from results import Results
from sizes import SIZES, Size
from tables import figures, tables
from watched import AGENTS_COMPARED, SCRATCH, Watch

from rlflow import search
from rlflow.env import ProblemSpec

HERE = Path(__file__).resolve().parent
SHARE = 0.9
TEMPERATURES = (0.1, 0.5, 0.75, 1.0, 1.2, 1.5, 1.75, 2.0, 2.5, 3.0)
#: What is kept of a round: the convergence of the model and of the controller.
KEPT = ("expansions", "score", "dream_return", "model_loss", "forced_reward_correlation", "free_reward_correlation",
        "free_structure_exact", "forced_return_error", "free_return_error", "seconds")  # fmt: skip
REWARDS = ("improvement", "potential", "change", "runtime")
#: What the controller learns by, and the same without a single dream: the options, by the name of the row.
CONTROLLERS: dict[str, dict[str, str]] = {
    "ppo": {},
    "ppo, untrained": {"dream_updates": "0"},
    "cma": {"controller": "cma", "dream_updates": "30"},
    "cma, variational": {"controller": "cma", "dream_updates": "30", "encoder": "variational"},
    "cma, untrained": {"controller": "cma", "dream_updates": "0"},
}
BASELINES = ("greedy", "backtracking", "rlflow", "rlflow:share=1", "beam:width=8", "xrlflow",
             "rlflow:worldmodel=latent", "random")  # fmt: skip
#: Of these, another seed is another result.
DRAWN = ("random", "xrlflow", "rlflow:worldmodel=latent")


# --- sample efficiency ------------------------------------------------------------------------------------------------


def best_known(rows: Results, model: str) -> float:
    """The largest log gain that a search found here: backtracking, beam and greedy with a long budget."""
    key = f"known/{model}"
    if not rows.have(key):
        loaded, gains = ProblemSpec(model).load(), {}
        for strategy in ("greedy", "backtracking", "beam:width=8"):
            result = search.solve(loaded.problem("1000x,60s"), strategy)
            gains[strategy] = math.log(result.cost_before_ms / result.cost_after_ms)
        rows.add({"kind": "known", "key": key, "model": model, "gain": max(gains.values()), "gains": gains})
    return max(row["gain"] for row in rows.of("known") if row["model"] == model)


def efficiency(rows: Results, size: Size) -> None:
    """Every agent on every model, alone and from nothing, until 90 % of the best-known gain."""
    for seed in range(size.seeds):
        for model in size.models:
            known = best_known(rows, model)
            for label, run in AGENTS_COMPARED.items():
                key = f"efficiency/{model}/{label}/{seed}"
                if rows.have(key) or (label == "greedy" and seed):
                    continue
                watch = Watch(SHARE * known, size.limit, size.seconds)
                run(model, watch, size, seed)
                rows.add({"kind": "efficiency", "key": key, "model": model, "label": label, "seed": seed,
                          "known": known, **watch.row()})  # fmt: skip


# --- step times -------------------------------------------------------------------------------------------------------


def steps(rows: Results, size: Size) -> None:
    """A dream's step and the engine's, one after the other in one run; the medians of several passes."""
    from rlflow.agents.rlflow import config as worldmodel_config
    from rlflow.agents.rlflow.train import WorldTrainer

    for model in size.timed:
        key = f"steps/{model}"
        if rows.have(key):
            continue
        config = worldmodel_config.preset("tuned").with_options(
            {**size.latent, "random_episodes": "2", "fit_steps": "5", "dream_updates": "1"}
        )
        trainer = WorldTrainer([ProblemSpec(model)], config)
        trainer.train(1 << 30, rounds=1)
        rows.add({"kind": "steps", "key": key, "model": model, **dream_times(trainer), **real_times(model)})


def dream_times(trainer: Any) -> dict[str, float]:
    """Milliseconds of CPU of a step, controller included, of 1 and of 64 dreams side by side."""
    import numpy as np

    from rlflow.agents.rlflow.dream import Dream, choose, random_of
    from rlflow.agents.rlflow.pilot import dream_starts

    agent, rng, out = trainer.agent, np.random.default_rng(0), {}
    for count in (1, 64):
        env = Dream(agent.networks["world"], "improvement", 1.0, 1.0, random_of(rng))
        passes = []
        for _ in range(7):
            state = dream_starts(agent.memories, trainer.replay.episodes, count, rng)
            begun = time.process_time()
            for _ in range(20):
                row, location, _, _ = choose(agent.controller, state.z, state.hidden, state.fires, env.random)
                state = env.step(state, row, location)[0]
            passes.append((time.process_time() - begun) / 20 / count)
        out[f"dream_ms_{count}"] = 1e3 * statistics.median(passes)
    return out


def real_times(model: str) -> dict[str, float]:
    """Milliseconds of CPU of an engine's step (open, enumerate, price, observe); by the clock, of timing the model."""
    import numpy as np

    from rlflow.agents.rlflow.real import RandomPilot
    from rlflow.env.reward import Improvement
    from rlflow.env.timer import EndToEndTimer
    from rlflow.env.walks import Episode, Walks

    loaded = ProblemSpec(model).load(weights=True)
    walks, pilot, spent = Walks(loaded.problem()), RandomPilot(np.random.default_rng(0), 0.0), []
    episode = Episode(walks, Improvement(), 60)
    for _ in range(60):
        if episode.ended:
            break
        action = pilot.choose(episode)
        begun = time.process_time()
        episode.step(action)
        episode.observe()
        spent.append(time.process_time() - begun)
    timer, measured = EndToEndTimer(loaded.imported), []
    try:
        timer.gain(episode.place.node.graph)  # opens the runtime and the starting graph
        for _ in range(3):
            begun = time.perf_counter()
            timer.gain(episode.place.node.graph)
            measured.append(time.perf_counter() - begun)
    finally:
        timer.close()
    return {"real_ms": 1e3 * statistics.median(spent), "measure_ms": 1e3 * statistics.median(measured)}


# --- the paper's studies ----------------------------------------------------------------------------------------------


def studies(
    rows: Results,
    size: Size,
    kind: str,
    values: Iterable[Any],
    options: Callable[[Any], dict[str, str]],
    seeds: Iterable[int | None] = (None,),
) -> None:
    """The loop with one option in several values: what is dreamt, what is real, round by round; with the first seed, or
    with each of ``seeds``, which is then part of the value.
    """
    from rlflow.agents.rlflow import config as worldmodel_config
    from rlflow.agents.rlflow.train import WorldTrainer

    for model in size.studied:
        for value, seed in itertools.product(values, seeds):
            label = value if seed is None else f"{value}, seed {seed}"
            key = f"{kind}/{model}/{label}"
            if rows.have(key):
                continue
            config = worldmodel_config.preset("tuned").with_options({**size.latent, **SCRATCH, **options(value)})
            rounds: list[dict[str, Any]] = []
            trainer = WorldTrainer([ProblemSpec(model)], config, seed=seed or 0)
            begun = time.process_time()
            card = trainer.train(size.study_expansions, rounds=size.study_rounds, on_round=rounds.append).card
            last = rounds[-1] if rounds else {}
            rows.add({"kind": kind, "key": key, "model": model, "value": label, "score": card["score"],
                      "best": max(card["best_gains"].values()), "expansions": card["expansions"],
                      "seconds": card["seconds"], "cpu_seconds": time.process_time() - begun,
                      "model_losses": [round(one, 4) for one in trainer.agent.fitter.history],
                      "dream_returns": [round(one, 5) for one in trainer.agent.history],
                      "dreamt": last.get("dream_return"), "last": last.get("score"),
                      "rounds": [{name: one.get(name) for name in KEPT} for one in rounds]})  # fmt: skip


# --- the searches -----------------------------------------------------------------------------------------------------


def searches(rows: Results, size: Size) -> None:
    """Every search with the same CPU seconds, by the process's own clock; those that draw, with several seeds.

    Importing torch and reading a checkpoint is not in the seconds: it is done once, before.
    """
    from rlflow.agents.rlflow.trained import load_world
    from rlflow.agents.xrlflow.trained import load_policy

    load_policy(), load_world(None, "graph").networks(), load_world(None, "latent").networks()
    for model in size.searched:
        loaded = None
        for strategy in BASELINES:
            for seed in range(size.seeds if strategy in DRAWN else 1):
                key = f"search/{model}/{strategy}/{seed}"
                if rows.have(key) or search.unavailable(strategy) is not None:
                    continue
                loaded = loaded or ProblemSpec(model).load()
                problem = loaded.problem(f"{size.search_seconds}s", seed=seed, clock=time.process_time)
                result = search.solve(problem, strategy)
                rows.add({"kind": "search", "key": key, "model": model, "label": strategy, "seed": seed,
                          "gain": math.log(result.cost_before_ms / result.cost_after_ms),
                          "best_after": result.curve[-1].seconds if result.curve else 0.0,
                          "expansions": result.counts.expansions, "cpu_seconds": result.seconds,
                          "budget": size.search_seconds, "stop_reason": str(result.stop_reason),
                          "curve": [[p.expansions, p.seconds, p.cost_ms] for p in result.curve]})  # fmt: skip


STAGES: dict[str, Callable[[Results, Size], None]] = {
    "efficiency": efficiency,
    "steps": steps,
    "temperatures": lambda rows, size: studies(
        rows, size, "temperature", TEMPERATURES, lambda t: {"temperature": str(t), "temperature_end": str(t)}
    ),
    "rewards": lambda rows, size: studies(rows, size, "reward", REWARDS, lambda name: {"reward": str(name)}),
    "controllers": lambda rows, size: studies(
        rows, size, "controller", CONTROLLERS, lambda name: CONTROLLERS[name], range(size.seeds)
    ),
    "searches": searches,
    "tables": lambda rows, size: None,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--stage", choices=[*STAGES, "all"], default="all")
    parser.add_argument("--out", type=Path, help="results file (default: results/SIZE.jsonl)")
    results.add_options(parser)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    path = options.out or HERE / "results" / f"{options.size}.jsonl"
    command = ["python", "reproduce/rlflow/run.py", "--size", options.size, "--stage", options.stage]
    dirty = options.dirty or options.stage == "tables"  # which measures nothing
    rows = Results(path, command, resume=True, dirty=dirty, bulky=("curve", "rounds", "model_losses", "dream_returns"))
    for name, stage in STAGES.items():
        if options.stage == name or options.stage == "all":
            stage(rows, SIZES[options.size])
    print(rows.about())
    print("\n".join(tables(rows)))
    figures(rows, path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
