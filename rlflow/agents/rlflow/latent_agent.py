"""The paper's form: fits the latent world model, then lets the controller learn in its dreams, and acts by that."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlflow.agents.rlflow.config import WorldConfig
from rlflow.agents.rlflow.dream import Controller, Dream, DreamState, dream, improve, random_of
from rlflow.agents.rlflow.evolving import DreamEvolution
from rlflow.agents.rlflow.latent_fit import Fitter, Memories, judge
from rlflow.agents.rlflow.pilot import ControllerPilot, dream_starts
from rlflow.agents.rlflow.real import RealWorld
from rlflow.agents.rlflow.replay import Recorded
from rlflow.agents.torch_state import load_optimizer, optimizer_arrays

_TINY = 1e-6
#: How many times the controller's rate its two slopes over prices learn at.
_SLOPES = 30.0


class Proximal:
    """Teaches a controller by PPO, with a rate of its own for its two slopes over prices."""

    def __init__(self, config: WorldConfig, controller: Controller) -> None:
        self.config, self.controller, self.dreams = config, controller, config.dreams
        self.optimizer = torch.optim.Adam(_rates(controller, config.controller_lr), eps=1e-5)

    def update(
        self, env: Dream, state: DreamState, horizon: int, units: Tensor, rng: np.random.Generator
    ) -> dict[str, float]:
        """Dreams from ``state``, and one update on them; the figures of ``docs/metrics.md``."""
        found = dream(env, self.controller, state, horizon, units, self.config)
        figures = improve(self.controller, self.optimizer, found, self.config, rng)
        return {"dream_return": found.total, "dream_length": found.length, "dream_steps": len(found), **figures}

    def arrays(self) -> dict[str, np.ndarray]:
        """What a resumed training needs."""
        return optimizer_arrays(self.optimizer, self.controller, "adam-controller")

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The reverse of :meth:`arrays`."""
        load_optimizer(self.optimizer, self.controller, "adam-controller", arrays)


class LatentAgent:
    """``history``: the mean return of the dreams of every update so far."""

    def __init__(self, config: WorldConfig, networks: dict[str, Any], memories: Memories, seed: int) -> None:
        self.config, self.networks, self.memories = config, networks, memories
        self.controller = networks["controller"]
        self.fitter, self.history = Fitter(memories, seed), list[float]()
        self.teacher: Proximal | DreamEvolution = (
            DreamEvolution(config, self.controller) if config.controller == "cma" else Proximal(config, self.controller)
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """What a resumed training needs beside the weights."""
        return optimizer_arrays(self.fitter.optimizer, self.networks["world"], "adam-world") | self.teacher.arrays()

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """The reverse of :meth:`arrays`."""
        load_optimizer(self.fitter.optimizer, self.networks["world"], "adam-world", arrays)
        self.teacher.load(arrays)

    def learn(self, rounds: int, rng: np.random.Generator, stopped: Callable[[], bool]) -> dict[str, float]:
        """Fit, then dream; the figures of ``docs/metrics.md``."""
        begun = time.monotonic()
        figures = self.fitter.fit(self.config.fit_steps, rng, stopped)
        fitted = time.monotonic()
        figures |= self._dream(rounds, rng, stopped)
        return {**figures, "fit_seconds": fitted - begun, "dream_seconds": time.monotonic() - fitted}

    def _dream(self, rounds: int, rng: np.random.Generator, stopped: Callable[[], bool]) -> dict[str, float]:
        config, episodes = self.config, [one for one in self.memories.replay.episodes if len(one)]
        if not episodes:
            return {}
        horizon = round(config.scheduled(config.dream_horizon, config.dream_horizon_end, rounds))
        temperature = config.scheduled(config.temperature, config.temperature_end, rounds)
        env = Dream(self.networks["world"], config.reward, temperature, config.disagreement, random_of(rng),
                    config.gamma)  # fmt: skip
        units, rows = self.units(), []
        for _ in range(config.dream_updates):
            if stopped():
                break
            state = dream_starts(self.memories, episodes, self.teacher.dreams, rng)
            if not bool(state.alive.any()):
                continue
            rows.append(self.teacher.update(env, state, horizon, units, rng))
            self.history.append(rows[-1]["dream_return"])
        if not rows:
            return {}
        last = rows[-max(1, len(rows) // 5) :]
        means = {name: float(np.mean([row[name] for row in last])) for name in rows[0]}
        return {**means, "dream_steps": sum(row["dream_steps"] for row in rows), "dream_horizon": horizon,
                "temperature": temperature}  # fmt: skip

    def units(self) -> torch.Tensor:
        """[specs]: the largest gain seen of each problem, in units of which its rewards are."""
        episodes = self.memories.replay.episodes
        found = torch.ones(1 + max(one.spec for one in episodes))
        for one in episodes:
            best = max(other.best for other in episodes if other.spec == one.spec)
            found[one.spec] = best if best > _TINY else 1.0
        return found

    def explore(self, real: RealWorld, spec: int, rng: np.random.Generator) -> list[Recorded]:
        """Real episodes by the current controller, drawn."""
        pilot = self._pilot(real, spec, random_of(rng))
        return [real.play(spec, pilot) for _ in range(self.config.episodes) if not real.finished()]

    def act(self, real: RealWorld, spec: int) -> Recorded:
        """A real episode by the likeliest choices, which judges the controller; it is kept too."""
        return real.play(spec, self._pilot(real, spec, None))

    def judge(self, episodes: Sequence[Recorded]) -> dict[str, float]:
        """The model's predictions against real episodes."""
        return judge(self.memories, episodes)

    def _pilot(self, real: RealWorld, spec: int, random: torch.Generator | None) -> ControllerPilot:
        return ControllerPilot(self.networks["world"], self.controller, self.memories.rows(spec), random)


def _rates(controller: Controller, lr: float) -> list[dict[str, Any]]:
    """Groups of parameters with their rates: the two slopes are scalars of the size of logits, and move faster."""
    slopes = [controller.prior, controller.rule_prior]
    rest = [one for one in controller.parameters() if all(one is not slope for slope in slopes)]
    return [{"params": rest, "lr": lr}, {"params": slopes, "lr": _SLOPES * lr}]
