"""Whole models by the clock, small ones; nothing here asserts a speed."""

from __future__ import annotations

import math

import pytest
from worlds import needs_gymnasium

from rlflow import env

pytestmark = [needs_gymnasium, pytest.mark.slow]


def test_a_whole_model_is_timed_every_k_steps_and_at_the_end() -> None:
    world = env.make("nasrnn?seq=2", reward="end-to-end", every=2)
    try:
        world.reset()
        rewards = [world.step(1)[1], world.step(1)[1], world.step(0)[1]]
        timer = world._loaded[0][2].timer
        assert rewards[0] == 0.0
        assert all(math.isfinite(reward) and reward >= 0 for reward in rewards)
        assert timer._start is not None
        gain, low = timer.gain(world.episode.place.node.graph)
        assert low <= gain
    finally:
        world.close()
