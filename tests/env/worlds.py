"""Environments over the tiny problems, for tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlflow import env
from rlflow.testing import TINY, optimum

BY_NAME = {tiny.name: tiny for tiny in TINY}

needs_gymnasium = pytest.mark.skipif(env.available() is not None, reason=str(env.available()))


def tiny_world(name: str, horizon: int = 12, **options: Any) -> Any:
    """The environment over a tiny problem."""
    tiny = BY_NAME[name]
    return env.make(tiny.graph(), tiny.rules, horizon=horizon, cost_options=tiny.cost, **options)


def tiny_spec(name: str) -> env.ProblemSpec:
    """The tiny problem as a specification."""
    tiny = BY_NAME[name]
    return env.ProblemSpec.of(tiny.graph(), tiny.rules, cost_options=tiny.cost)


def tiny_episode(name: str, reward: Any = None, horizon: int = 12, **options: Any) -> env.Episode:
    """A walk over a tiny problem; needs no Gymnasium."""
    walks = env.Walks(BY_NAME[name].problem(env.spec.ENDLESS))
    return env.Episode(walks, reward or env.Improvement(), horizon, **options)


def world_trainer(name: str, config: Any, seed: int = 0, **more: Any) -> Any:
    """A trainer of world models on a tiny problem, on one thread; needs torch."""
    import torch

    from rlflow.agents.rlflow.train import WorldTrainer

    torch.set_num_threads(1)
    return WorldTrainer([tiny_spec(name)], config, seed=seed, **more)


def best_gain(name: str) -> float:
    """The logarithm of what can be gained on a tiny problem."""
    return math.log(BY_NAME[name].problem("1x").root().cost / optimum(BY_NAME[name]).cost_ms)


def after_a_round(trainer: Callable[..., Any], folder: Path) -> Any:
    """A trainer after one round, collected, fitted, dreamt and acted, with its files in ``folder``."""
    agent = trainer(out=folder / "agent.npz", logs=folder / "logs")
    agent.train(1000, rounds=1)
    return agent
