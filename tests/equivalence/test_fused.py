"""What the runtime's optimisations change on probes is the original's own noise for a graph that has them inside."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlflow.equivalence.noise import calibrate
from rlflow.equivalence.probes import Probe


@pytest.mark.parametrize(("fused", "variants"), [(False, [1, 0]), (True, [1, 1])])
def test_probes_are_run_as_deployed_where_that_is_what_is_compared(fused: bool, variants: list[int]) -> None:
    usual, probe = {"x": np.arange(3)}, Probe("zeros", {"x": np.zeros(3, np.int64)})
    plan: Any = SimpleNamespace(probes=lambda *_: [probe], sensitivity=SimpleNamespace(stepped=frozenset()))

    def runs(model: Any, feeds: Any, level: str) -> list[dict[str, Any]]:
        return [{"y": one["x"] + (0.25 if level == "all" else 0.0)} for one in feeds]

    found = calibrate(runs, b"no model", [usual], plan=plan, moved=False, fused=fused)
    assert [len(group.variants) for group in found.groups] == variants
    assert [[float(run["y"][0]) for run in rows] for rows in found.groups[1].variants] == [[0.25]] * fused
    assert [float(run["y"][2]) for run in found.deployed] == [2.25]


def test_a_probe_that_is_refused_as_deployed_is_still_compared() -> None:
    usual, probe = {"x": np.arange(3)}, Probe("zeros", {"x": np.zeros(3, np.int64)})
    plan: Any = SimpleNamespace(probes=lambda *_: [probe], sensitivity=SimpleNamespace(stepped=frozenset()))

    def runs(model: Any, feeds: Any, level: str) -> list[dict[str, Any]]:
        refused = level == "all"
        return [{} if refused and not one["x"].any() else {"y": one["x"] + 0.0} for one in feeds]

    found = calibrate(runs, b"no model", [usual], plan=plan, moved=False, fused=True)
    assert [(len(group.plain), group.variants) for group in found.groups[1:]] == [(1, [])]
