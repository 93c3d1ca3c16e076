"""What counts of the runs that are compared: both levels of optimisation, every output, no random one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlflow.equivalence import WorkerRunner, calibrate, verify
from rlflow.equivalence.runners import KeptSessions
from rlflow.runtime import RuntimeOptions

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


@pytest.mark.parametrize("moved", [True, False])
def test_an_output_that_is_random_is_not_compared(moved: bool) -> None:
    rng = np.random.default_rng(0)

    def random(model: Any, feeds: Sequence[Mapping[str, Any]], level: str) -> list[dict[str, Any]]:
        return [{"y": rng.standard_normal(8).astype(np.float32) * 1e-3 + 1.0} for _ in feeds]

    found = verify(random, "original", "same", FEEDS, noise=calibrate(random, "original", FEEDS, moved=moved))
    assert found.passed
    assert found.vacuous


@pytest.mark.parametrize(("added", "moved", "passed"), [(0.0, False, True), (5e-6, True, True), (0.05, True, False)])
def test_moved_inputs_that_were_put_off_are_run_where_roundings_show(added: float, moved: bool, passed: bool) -> None:
    runs = []

    def steep(model: Any, feeds: Iterable[Mapping[str, Any]], level: str) -> list[dict[str, Any]]:
        found = [np.sin(np.float32(1000) * one["x"]) + np.float32(added * (model == "other")) for one in feeds]
        runs.append((model, level, len(found)))
        return [{"y": one} for one in found]

    noise = calibrate(steep, "original", FEEDS, moved=False)
    assert runs == [("original", "disable", 2), ("original", "all", 2)]
    found = verify(steep, "original", "other", FEEDS, noise=noise)
    assert (found.passed, noise.moved) == (passed, moved)


class Counted:
    """What opens models, and how often it was asked to."""

    options = RuntimeOptions()

    def __init__(self) -> None:
        self.opened: list[tuple[Any, str]] = []
        self.closed: list[Any] = []

    def load(self, model: Any, *, level: str, time_limit: float | None = None) -> Any:
        self.opened.append((model, level))
        return SimpleNamespace(key=len(self.opened), io=(model, level))

    def unload(self, handle: Any) -> None:
        self.closed.append(handle.io)

    def run(self, handle: Any, feeds: Any, *, time_limit: float | None = None) -> Any:
        return handle.io


def test_sessions_of_one_model_are_kept() -> None:
    counted: Any = Counted()
    kept = KeptSessions(counted, "original")
    assert kept.interface("original") == ("original", "disable")
    run = WorkerRunner(kept)
    for model in ("original", "other", "original", "other"):
        for level in ("disable", "all"):
            assert run(model, [{}, {}], level) == [(model, level)] * 2
    assert sorted(counted.opened) == [("original", "all"), ("original", "disable"), *[("other", "all")] * 2,
                                      *[("other", "disable")] * 2]  # fmt: skip
    assert sorted(counted.closed) == [("other", "all")] * 2 + [("other", "disable")] * 2
