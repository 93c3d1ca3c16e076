"""A model whose graph the runtime has optimised already is run once for both levels."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlflow.equivalence.runners import run_once


def test_outputs_with_optimisations_off_are_those_as_deployed() -> None:
    asked: list[tuple[str, str, int]] = []

    def runs(model: Any, feeds: Any, level: str) -> list[dict[str, Any]]:
        given = list(feeds)
        asked.append((model, level, len(given)))
        return [{"y": one["x"] + len(asked)} for one in given]

    usual = [{"x": np.float32(number)} for number in (10, 20)]
    probe, stranger = {"x": np.float32(30)}, {"x": np.float32(10)}
    run = run_once(runs, "made")
    assert [out["y"] for out in run("made", iter([*usual, probe]), "disable")] == [11, 21, 31]
    assert [out["y"] for out in run("made", usual, "all")] == [11, 21]
    assert [out["y"] for out in run("original", usual, "all")] == [12, 22]
    assert [out["y"] for out in run("made", [stranger], "all")] == [13]  # never run: so it is now, and as deployed
    assert asked == [("made", "disable", 3), ("original", "all", 2), ("made", "disable", 1)]


def test_each_input_has_its_own_outputs_however_often_it_was_asked() -> None:
    def runs(model: Any, feeds: Any, level: str) -> list[dict[str, Any]]:
        return [{"y": one["x"]} for one in feeds]

    first, second = ({"x": np.float32(number)} for number in (1, 2))
    run = run_once(runs, "made")
    run("made", [first], "disable")
    run("made", [first], "disable")
    assert [out["y"] for out in run("made", [first, second], "all")] == [1, 2]
