"""The agents of the sample-efficiency table, each alone on one model from nothing, with the engine watched.

What counts are the distinct graphs that are really opened, whoever opens them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sizes import Size

from rlflow import search
from rlflow.env import ProblemSpec
from rlflow.search import StopToken

#: The latent form without what begins near the greedy choice.
SCRATCH = {"rule_prior": "0", "prior": "0", "downhill_episodes": "0"}


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


def by_world_model(preset: str, options: Callable[[Size], dict[str, str]]) -> Callable[[str, Watch, Size, int], Any]:
    """Trains a world model on one problem until the watch says stop."""

    def run(model: str, watch: Watch, size: Size, seed: int) -> Any:
        from rlflow.agents.rlflow import config as worldmodel_config
        from rlflow.agents.rlflow.train import WorldTrainer

        config = worldmodel_config.preset(preset).with_options(options(size))
        trainer = WorldTrainer([watched(model, watch)], config, seed=seed)
        trainer.train(size.limit, stop=watch.stop)

    return run


def by_ppo(options: dict[str, str]) -> Callable[[str, Watch, Size, int], Any]:
    """Trains X-RLflow's agent on one problem until the watch says stop."""

    def run(model: str, watch: Watch, size: Size, seed: int) -> Any:
        from rlflow.agents.xrlflow.config import preset
        from rlflow.agents.xrlflow.ppo import Trainer

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
