"""RLFlow's tables: sample efficiency, step times, the paper's studies, and the searches side by side.

    python reproduce/rlflow/run.py --stage efficiency      real expansions to 90 % of the best-known gain
    python reproduce/rlflow/run.py --stage steps           a dream's step against the engine's, analytic and end to end
    python reproduce/rlflow/run.py --stage temperatures    τ from 0.1 to 3.0
    python reproduce/rlflow/run.py --stage rewards         the reward functions
    python reproduce/rlflow/run.py --stage searches        the searches that do not learn, xrlflow and rlflow
    python reproduce/rlflow/run.py --stage ship            trains the two checkpoints that come with the package
    python reproduce/rlflow/run.py --stage tables          only prints the tables of what is there, and draws the curves

`--size small` (default) runs in minutes a stage on one core, `--size full` is the setting of the paper's models and
takes days. Every run is a row of results/SIZE.jsonl; what the file has is not run again, so that an interrupted
run goes on. Costs are the analytic model's unless said otherwise.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, os.fspath(Path(__file__).resolve().parents[1]))

import machine

from rlflow import search
from rlflow.env import ProblemSpec
from rlflow.search import StopToken

HERE = Path(__file__).resolve().parent
AGENTS = machine.ROOT / "build" / "rlflow"
SHARE = 0.9
#: The latent form without what begins near the greedy choice.
SCRATCH = {"rule_prior": "0", "prior": "0", "downhill_episodes": "0"}
TEMPERATURES = (0.1, 0.5, 0.75, 1.0, 1.2, 1.5, 1.75, 2.0, 2.5, 3.0)
#: What is kept of a round: the convergence of the model and of the controller.
KEPT = ("expansions", "score", "dream_return", "model_loss", "forced_reward_correlation", "free_reward_correlation",
        "free_structure_exact", "forced_return_error", "free_return_error", "seconds")  # fmt: skip
REWARDS = ("improvement", "potential", "change", "runtime")
BASELINES = ("random", "greedy", "backtracking", "xrlflow", "rlflow", "rlflow:worldmodel=latent",
             "rlflow:descent=false", "xrlflow:descent=false")  # fmt: skip


@dataclass(frozen=True)
class Size:
    """``models``: of the efficiency stage; ``limit``: expansions and ``seconds`` of CPU after which a run is given up.
    ``latent``, ``graph``: what is set beside the presets ``tuned`` and ``graph``.
    """

    models: tuple[str, ...]
    searched: tuple[str, ...]
    timed: tuple[str, ...]
    studied: tuple[str, ...]
    seeds: int
    limit: int
    seconds: float
    budget: str
    study_expansions: int
    study_rounds: int
    latent: dict[str, str]
    graph: dict[str, str]
    graphs: int


SIZES = {
    "small": Size(
        models=("squeezenet1.1", "vit-base?layers=2", "llama-decoder-step", "resnet-18", "mobilenet-v2", "fpn-resnet18",
                "unet", "bert6-classifier?layers=2"),
        searched=("squeezenet1.1", "resnet-18", "resnet-50", "bert-base?layers=2&seq=64", "vit-base?layers=2",
                  "inception-v3"),
        timed=("squeezenet1.1", "inception-v3", "bert-base"),
        studied=("vit-base?layers=2", "squeezenet1.1"),
        seeds=3,
        limit=3000,
        seconds=60.0,
        budget="100x",
        study_expansions=300,
        study_rounds=4,
        latent={"random_episodes": "2", "downhill_episodes": "1", "episodes": "2", "horizon": "60",
                "hidden": "128", "fit_steps": "100", "dream_updates": "10", "batch": "5", "schedule": "3"},
        graph={"random_episodes": "0", "horizon": "60", "fit_steps": "40", "batch": "8", "opens": "20"},
        graphs=1,
    ),
    "full": Size(
        models=("squeezenet1.1", "resnet-18", "resnet-50", "inception-v3", "bert-base", "vit-base"),
        searched=("squeezenet1.1", "resnet-18", "resnet-50", "inception-v3", "bert-base", "vit-base"),
        timed=("squeezenet1.1", "resnet-50", "inception-v3", "bert-base", "vit-base"),
        studied=("bert-base", "inception-v3"),
        seeds=5,
        limit=100_000,
        seconds=4 * 3600.0,
        budget="1000x",
        study_expansions=5000,
        study_rounds=20,
        latent={},
        graph={},
        graphs=5,
    ),
}  # fmt: skip


class Rows:
    """The results file: rows by key, written after each one."""

    def __init__(self, path: Path, command: list[str]) -> None:
        self.path = path
        self.rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        self.rows = self.rows or [machine.header(command)]

    def have(self, key: str) -> bool:
        return any(row.get("key") == key for row in self.rows)

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        machine.write_jsonl(self.path, self.rows)
        shown = {name: value for name, value in row.items() if name not in ("kind", "curve", "rounds", "key")}
        print(row["key"], json.dumps(shown), file=sys.stderr, flush=True)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["kind"] == kind]


# --- watching the engine ----------------------------------------------------------------------------------------------


class Watch:
    """Counts the distinct graphs that are really opened, whoever opens them, and when which gain was first reached.

    Sets ``stop`` once ``wanted`` is reached, or after ``limit`` graphs or ``seconds`` of CPU.
    """

    def __init__(self, wanted: float, limit: int, seconds: float) -> None:
        self.wanted, self.limit, self.seconds = wanted, limit, seconds
        self.stop, self.seen = StopToken(), set[bytes]()
        self.begun, self.cpu = time.monotonic(), time.process_time()
        self.best = 0.0
        self.curve: list[tuple[int, float, float, float]] = [(0, 0.0, 0.0, 0.0)]

    def enumerated(self, table: Any) -> None:
        """Candidates are not counted here: every agent prices all of a graph that it opens."""

    def opened(self, parent: Any, child: Any, rule: int, is_best: bool) -> None:
        self.seen.add(child.digest)
        gain = math.log(self.start / max(child.cost, 1e-12))
        spent, cpu = time.monotonic() - self.begun, time.process_time() - self.cpu
        if gain > self.best + 1e-12:
            self.best = gain
            self.curve.append((len(self.seen), spent, cpu, gain))
        if self.best >= self.wanted or len(self.seen) >= self.limit or cpu > self.seconds:
            self.stop.stop()

    def attach(self, problem: Any) -> Any:
        problem.observer, self.start = self, problem.start_cost
        return problem

    def row(self) -> dict[str, Any]:
        reached = next((point for point in self.curve if point[3] >= self.wanted), None)
        return {
            "reached": reached is not None, "expansions": reached[0] if reached else len(self.seen),
            "seconds": reached[1] if reached else time.monotonic() - self.begun,
            "cpu_seconds": reached[2] if reached else time.process_time() - self.cpu,
            "gain": self.best, "curve": self.curve,
        }  # fmt: skip


@dataclass(frozen=True)
class WatchedSpec(ProblemSpec):
    """A problem whose every opened graph is reported to a :class:`Watch` (by number: specs are plain values)."""

    watch: int = 0

    def load(self, weights: bool = False) -> Any:
        loaded = super().load(weights)
        make = loaded.problem
        loaded.problem = lambda *given, **options: WATCHES[self.watch].attach(make(*given, **options))
        return loaded


WATCHES: dict[int, Watch] = {}


def watched(model: str, watch: Watch) -> WatchedSpec:
    """The model, watched."""
    WATCHES[len(WATCHES)] = watch
    return WatchedSpec(model, watch=len(WATCHES) - 1)


# --- sample efficiency ------------------------------------------------------------------------------------------------


def best_known(rows: Rows, model: str) -> float:
    """The largest log gain that a search found here: backtracking, beam and greedy with a long budget."""
    key = f"known/{model}"
    if not rows.have(key):
        loaded, gains = ProblemSpec(model).load(), {}
        for strategy in ("greedy", "backtracking", "beam:width=8"):
            result = search.solve(loaded.problem("1000x,60s"), strategy)
            gains[strategy] = math.log(result.cost_before_ms / result.cost_after_ms)
        rows.add({"kind": "known", "key": key, "model": model, "gain": max(gains.values()), "gains": gains})
    return max(row["gain"] for row in rows.of("known") if row["model"] == model)


def by_world_model(preset: str, options: Callable[[Size], dict[str, str]]) -> Callable[[str, Watch, Size, int], Any]:
    """Trains a world model on one problem until the watch says stop."""

    def run(model: str, watch: Watch, size: Size, seed: int) -> Any:
        from rlflow.agents import worldmodel_config
        from rlflow.agents.worldmodel_train import WorldTrainer

        config = worldmodel_config.preset(preset).with_options(options(size))
        trainer = WorldTrainer([watched(model, watch)], config, seed=seed)
        trainer.train(size.limit, stop=watch.stop)

    return run


def by_ppo(options: dict[str, str]) -> Callable[[str, Watch, Size, int], Any]:
    """Trains X-RLflow's agent on one problem until the watch says stop."""

    def run(model: str, watch: Watch, size: Size, seed: int) -> Any:
        from rlflow.agents.config import preset
        from rlflow.agents.xrlflow import Trainer

        config = preset("tuned").with_options({**options, "episodes": "4"})
        trainer = Trainer([watched(model, watch)], config, seed=seed, evaluate_every=1 << 30)
        trainer.train(1 << 30, stop=watch.stop)

    return run


def by_search(strategy: str) -> Callable[[str, Watch, Size, int], Any]:
    def run(model: str, watch: Watch, size: Size, seed: int) -> Any:
        problem = watched(model, watch).load().problem(f"{size.limit}x,{size.seconds}s", seed=seed, stop=watch.stop)
        search.solve(problem, strategy)

    return run


AGENTS_COMPARED: dict[str, Callable[[str, Watch, Size, int], Any]] = {
    "latent from scratch": by_world_model("tuned", lambda size: {**size.latent, **SCRATCH}),
    "latent": by_world_model("tuned", lambda size: size.latent),
    "graph": by_world_model("graph", lambda size: size.graph),
    "PPO from scratch": by_ppo({"policy.prior": "0"}),
    "PPO with greedy prior": by_ppo({}),
    "random": by_search("random"),
    "greedy": by_search("greedy"),
}


#: Whose expansions are divided by whose: the world model, the model-free agent.
PAIRS = (
    ("latent from scratch", "PPO from scratch"),
    ("graph", "PPO from scratch"),
    ("latent", "PPO with greedy prior"),
    ("graph", "PPO with greedy prior"),
)


def efficiency(rows: Rows, size: Size) -> None:
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


def steps(rows: Rows, size: Size) -> None:
    """A dream's step and the engine's, one after the other in one run; the medians of several passes."""
    from rlflow.agents import worldmodel_config
    from rlflow.agents.worldmodel_train import WorldTrainer

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

    from rlflow.agents.dream import Dream, choose, random_of
    from rlflow.agents.dream_pilot import dream_starts

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

    from rlflow.agents.worldmodel_real import RandomPilot
    from rlflow.env.endtoend import EndToEndTimer
    from rlflow.env.reward import Improvement
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
    rows: Rows, size: Size, kind: str, values: tuple[Any, ...], options: Callable[[Any], dict[str, str]]
) -> None:
    """The loop with one option in several values: what is dreamt, what is real, round by round."""
    from rlflow.agents import worldmodel_config
    from rlflow.agents.worldmodel_train import WorldTrainer

    for model in size.studied:
        for value in values:
            key = f"{kind}/{model}/{value}"
            if rows.have(key):
                continue
            config = worldmodel_config.preset("tuned").with_options({**size.latent, **SCRATCH, **options(value)})
            rounds: list[dict[str, Any]] = []
            trainer, begun = WorldTrainer([ProblemSpec(model)], config), time.process_time()
            card = trainer.train(size.study_expansions, rounds=size.study_rounds, on_round=rounds.append).card
            last = rounds[-1] if rounds else {}
            rows.add({"kind": kind, "key": key, "model": model, "value": value, "score": card["score"],
                      "best": max(card["best_gains"].values()), "expansions": card["expansions"],
                      "seconds": card["seconds"], "cpu_seconds": time.process_time() - begun,
                      "model_losses": [round(one, 4) for one in trainer.agent.fitter.history],
                      "dream_returns": [round(one, 5) for one in trainer.agent.history], "dreamt": last.get("dream_return"), "last": last.get("score"),
                      "rounds": [{name: one.get(name) for name in KEPT} for one in rounds]})  # fmt: skip


# --- the shipped checkpoints ------------------------------------------------------------------------------------------

SHIPPED = {
    "graph": ("graph", {"fit_steps": "150", "opens": "20", "horizon": "60"}, 1500),
    "latent": ("tuned", {"hidden": "128", "fit_steps": "150", "batch": "8", "horizon": "60", "random_episodes": "2",
                         "downhill_episodes": "2", "episodes": "1"}, 1500),
}  # fmt: skip
LEARNT = ("squeezenet1.1", "resnet-18", "vit-base?layers=2", "llama-decoder-step", "bert-base?layers=2&seq=64",
          "mobilenet-v2")  # fmt: skip


def ship(rows: Rows, size: Size) -> None:
    """Trains both forms on several models with the analytic cost; the weights go into the package in 16 bits."""
    from rlflow.agents import worldmodel_config
    from rlflow.agents.worldmodel_checkpoint import WorldCheckpoint, shipped
    from rlflow.agents.worldmodel_train import WorldTrainer

    for form, (preset, options, expansions) in SHIPPED.items():
        path = AGENTS / f"{form}.npz"
        config = worldmodel_config.preset(preset).with_options(options)
        resume = path.with_name(path.name + ".last").exists()
        trainer = WorldTrainer([ProblemSpec(model) for model in LEARNT], config, out=path, resume=resume,
                               logs=AGENTS / "logs" / form)  # fmt: skip
        trainer.train(
            expansions,
            on_round=lambda figures: print(figures["expansions"], figures["gains"], file=sys.stderr, flush=True),
        )
        WorldCheckpoint.load(path).save(shipped(form), half=True)
        rows.add(
            {"kind": "ship", "key": f"ship/{form}/{time.time():.0f}", "form": form, **WorldCheckpoint.load(path).card}
        )


# --- the searches -----------------------------------------------------------------------------------------------------


def searches(rows: Rows, size: Size) -> None:
    """Every search with the same number of expansions."""
    for model in size.searched:
        loaded = None
        for strategy in BASELINES:
            for seed in range(size.graphs):
                key = f"search/{model}/{strategy}/{seed}"
                if rows.have(key) or search.unavailable(strategy) is not None:
                    continue
                loaded = loaded or ProblemSpec(model).load()
                result = search.solve(loaded.problem(size.budget + ",120s", seed=seed), strategy)
                rows.add({"kind": "search", "key": key, "model": model, "label": strategy, "seed": seed,
                          "gain": math.log(result.cost_before_ms / result.cost_after_ms),
                          "expansions": result.counts.expansions, "seconds": result.seconds,
                          "stop_reason": str(result.stop_reason),
                          "curve": [[p.expansions, p.seconds, p.cost_ms] for p in result.curve]})  # fmt: skip


# --- what is printed --------------------------------------------------------------------------------------------------


def tables(rows: Rows) -> Iterator[str]:
    """Markdown, from the rows alone."""
    yield from efficiency_table(rows.of("efficiency"))
    yield from steps_table(rows.of("steps"))
    for kind in ("temperature", "reward"):
        yield from study_table(kind, rows.of(kind))
    yield from search_table(rows.of("search"))


def heading(*names: str) -> Iterator[str]:
    yield from ("", f"| {' | '.join(names)} |", "|---|" + "--:|" * (len(names) - 1))


def study_table(kind: str, found: list[dict[str, Any]]) -> Iterator[str]:
    if not found:
        return
    yield from heading(
        kind, "model", "dreamt", "real, last round", "real, best round", "best visited", "expansions", "s"
    )
    for row in found:
        cells = [_figure(row[name]) for name in ("dreamt", "last", "score", "best")]
        cells += [str(row["expansions"]), f"{row['seconds']:.0f}"]
        yield f"| {row['value']} | {row['model']} | {' | '.join(cells)} |"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _median(found: list[dict[str, Any]], name: str) -> str:
    """The median over seeds; `>` where one of them never got there and so is at least that."""
    if not found:
        return ""
    value = statistics.median(row[name] for row in found)
    return f"{'' if all(row['reached'] for row in found) else '> '}{value:.0f}"


def efficiency_table(found: list[dict[str, Any]]) -> Iterator[str]:
    if not found:
        return
    labels = list(dict.fromkeys(row["label"] for row in found))
    yield from ("", "Real expansions (CPU seconds, all included) to 90 % of the best-known gain, medians over seeds")
    yield from heading("model", *labels, *(f"{other} / {agent}" for agent, other in PAIRS))
    for model in dict.fromkeys(row["model"] for row in found):
        mine = {label: [r for r in found if r["model"] == model and r["label"] == label] for label in labels}
        cells = [f"{_median(mine[label], 'expansions')} ({_median(mine[label], 'cpu_seconds')})" for label in labels]
        yield f"| {model} | {' | '.join([*cells, *(_ratio(mine, *pair) for pair in PAIRS)])} |"


def _ratio(mine: dict[str, list[dict[str, Any]]], agent: str, other: str) -> str:
    """How many times as many expansions the other took, at the medians."""
    if not mine.get(agent) or not mine.get(other):
        return ""
    one, two = (statistics.median(row["expansions"] for row in mine[label]) for label in (agent, other))
    got_there = (all(row["reached"] for row in mine[label]) for label in (agent, other))
    sign = {(True, True): "", (True, False): "> ", (False, True): "< ", (False, False): "? "}[tuple(got_there)]
    return f"{sign}{two / max(one, 1):.1f}"


def steps_table(found: list[dict[str, Any]]) -> Iterator[str]:
    if not found:
        return
    yield from heading("model", "dream, ms, 1 alone", "of 64 side by side", "engine, ms", "ratio",
                       "engine with the clock every 5, ms", "ratio")  # fmt: skip
    for row in found:
        dreamt, real, whole = row["dream_ms_64"], row["real_ms"], row["real_ms"] + row["measure_ms"] / 5
        yield (
            f"| {row['model']} | {row['dream_ms_1']:.2f} | {dreamt:.3f} | {real:.2f} | {real / dreamt:.0f} "
            f"| {whole:.0f} | {whole / dreamt:.0f} |"
        )


def search_table(found: list[dict[str, Any]]) -> Iterator[str]:
    if not found:
        return
    labels = list(dict.fromkeys(row["label"] for row in found))
    yield from heading("log gain (seconds)", *labels)
    for model in dict.fromkeys(row["model"] for row in found):
        cells = []
        for label in labels:
            mine = [row for row in found if row["model"] == model and row["label"] == label]
            means = [statistics.mean(row[name] for row in mine) for name in ("gain", "seconds")] if mine else []
            cells.append("{:.4f} ({:.1f})".format(*means) if means else "")
        yield f"| {model} | {' | '.join(cells)} |"


def curves(rows: Rows, path: Path) -> None:
    """The efficiency curves, where matplotlib is installed."""
    from rlflow.errors import UsageError
    from rlflow.report.plots import anytime_curves

    runs = [
        {
            "model": row["model"],
            "strategy": row["label"],
            "cost_before_ms": 1.0,
            "expansions": max(1, row["curve"][-1][0]),
            "curve": [{"expansions": n, "cost_ms": math.exp(-gain)} for n, _, _, gain in row["curve"]],
        }
        for row in rows.of("efficiency")
    ]
    try:
        if runs:
            anytime_curves(runs, path)
    except UsageError as error:
        print(error, file=sys.stderr)


STAGES: dict[str, Callable[[Rows, Size], None]] = {
    "efficiency": efficiency,
    "steps": steps,
    "temperatures": lambda rows, size: studies(
        rows, size, "temperature", TEMPERATURES, lambda t: {"temperature": str(t), "temperature_end": str(t)}
    ),
    "rewards": lambda rows, size: studies(rows, size, "reward", REWARDS, lambda name: {"reward": str(name)}),
    "searches": searches,
    "ship": ship,
    "tables": lambda rows, size: None,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--stage", choices=[*STAGES, "all"], default="all")
    parser.add_argument("--out", type=Path, help="results file (default: results/SIZE.jsonl)")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    path = options.out or HERE / "results" / f"{options.size}.jsonl"
    rows = Rows(path, ["python", "reproduce/rlflow/run.py", "--size", options.size, "--stage", options.stage])
    for name, stage in STAGES.items():
        if options.stage == name or (options.stage == "all" and name != "ship"):
            stage(rows, SIZES[options.size])
    print(machine.describe(rows.rows[0]))
    print("\n".join(tables(rows)))
    curves(rows, path.with_name(f"{path.stem}-efficiency.png"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
