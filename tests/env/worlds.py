"""Environments over the tiny problems, for tests."""

from __future__ import annotations

from typing import Any

import pytest

from rlflow import env
from rlflow.testing import TINY

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
