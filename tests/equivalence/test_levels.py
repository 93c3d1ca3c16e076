"""What counts of the runs that are compared: both levels of optimisation, every output, no random one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from rlflow.equivalence import verify

FEEDS = [{"x": np.random.default_rng(seed).standard_normal(64).astype(np.float32)} for seed in range(2)]
#: By model: what is added to ``y`` with the runtime's optimisations off, and with them on; and a further output.
MODELS: dict[str, tuple[float, float, bool]] = {
    "original": (0.0, 0.0, False),
    "same": (0.0, 0.0, False),
    "off": (0.5, 0.5, False),
    "off as written": (0.5, 0.0, False),
    "off as deployed": (0.0, 0.5, False),
    "one output more": (0.0, 0.0, True),
}


def runner(model: Any, feeds: Sequence[Mapping[str, Any]], level: str) -> list[dict[str, Any]]:
    """A runtime that adds what the table says."""
    plain, deployed, more = MODELS[model]
    added = np.float32(plain if level == "disable" else deployed)
    return [{"y": np.tanh(one["x"]) + added, **({"z": one["x"]} if more else {})} for one in feeds]


@pytest.mark.parametrize(
    ("model", "passed"),
    [("same", True), ("off", False), ("off as written", False), ("off as deployed", False), ("one output more", False)],
)
def test_both_levels_and_all_outputs_count(model: str, passed: bool) -> None:
    assert verify(runner, "original", model, FEEDS).passed is passed


def test_an_output_that_is_random_is_not_compared() -> None:
    rng = np.random.default_rng(0)

    def random(model: Any, feeds: Sequence[Mapping[str, Any]], level: str) -> list[dict[str, Any]]:
        return [{"y": rng.standard_normal(8).astype(np.float32) * 1e-3 + 1.0} for _ in feeds]

    found = verify(random, "original", "same", FEEDS)
    assert found.passed
    assert found.vacuous
