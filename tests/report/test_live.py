"""What is shown while rlflow works: bars on a terminal, a line in a notebook, plain lines elsewhere, or nothing."""

from __future__ import annotations

import io
import sys
import time
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

import rlflow
from rlflow import zoo
from rlflow.equivalence.runners import CheckProgress
from rlflow.price.allowance import PricingProgress
from rlflow.race.track import RaceProgress
from rlflow.report import live
from rlflow.search import Progress

SEARCHING = Progress(2.0, 12.0, 0.25, 5230, 61, 7, 13.4, 12.31)
QUICK = {"cost": "analytic", "budget": "60x", "search": "greedy"}


class Stream(io.StringIO):
    """A stderr that is a terminal, or not. pytest puts its own in place after fixtures, so a test calls :meth:`use`."""

    def __init__(self, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.terminal, self.monkeypatch = terminal, monkeypatch

    def use(self) -> None:
        self.monkeypatch.setattr(sys, "stderr", self)

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Stream:
    stream = Stream(request.param, monkeypatch)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return stream


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return zoo.build("nasrnn", steps=2, hidden=8)


@pytest.mark.parametrize(
    ("event", "part", "words"),
    [
        (SEARCHING, 0.25, ["5230 candidates", "2615/s", "61 graphs opened", "7 measured", "12.31 ms (-8.1 %)", "12 s"]),
        (SEARCHING._replace(seconds_left=None), 0.25, ["25 % of the budget"]),
        (PricingProgress(24, 96, 8.0, 23.4), 0.25, ["24 of 96 regions", "3.0/s", "23 s left"]),
        (PricingProgress(0, 0, 0.0, None), 0.0, ["0 of 0 regions"]),
        (RaceProgress("confirming", 7, 14, 1.31, 12.2), 0.5, ["block 7 of about 14", "1.310 times", "12 s left"]),
        (RaceProgress("confirming", 20, 14, 1.31, 0.0), 1.0, ["block 20 of about 20", "0 s left"]),
        (RaceProgress("selecting", 1, 3, None, 2.0), 1 / 3, ["selecting: block 1 of about 3", "2 s left"]),
        (CheckProgress(31, 3.0, 9.0), 0.25, ["31 inputs", "10.3/s", "9 s left"]),
        (CheckProgress(31, 3.0, None), None, ["31 inputs"]),
        (live.Blocks(3, 7, 6.0), 3 / 7, ["3 of 7 blocks", "0.5/s", "8 s left"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_figures_say_how_many_how_fast_and_how_long(event: Any, part: float | None, words: list[str]) -> None:
    shown = live.figures(event)
    assert shown.part == (None if part is None else pytest.approx(part))
    for word in words:
        assert word in shown.text


@pytest.mark.parametrize(
    ("stderr", "quiet", "kind"),
    [
        (True, None, live.Live),
        (True, False, live.Live),
        (True, True, live.Board),
        (False, None, live.Board),
        (False, False, live.Plain),
        (False, True, live.Board),
    ],
    indirect=["stderr"],
)
def test_what_is_shown_where(stderr: Stream, quiet: bool | None, kind: type) -> None:
    stderr.use()
    assert type(live.reporter(quiet)) is kind


@pytest.mark.parametrize("stderr", [True], indirect=True)
def test_a_dumb_terminal_gets_plain_lines(stderr: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr.use()
    monkeypatch.setenv("TERM", "dumb")
    assert type(live.reporter(False)) is live.Plain


@pytest.mark.parametrize("stderr", [False], indirect=True)
def test_a_notebook_gets_one_line_that_changes(stderr: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr.use()
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with live.reporter(None) as board:
        assert type(board) is live.Notebook
        board.stage("searching")
        _settle(board)
        board.progress(SEARCHING)
    lines = stderr.getvalue().split("\n")
    assert lines[-1] == "" and len(lines) == 2
    assert lines[0].startswith("\rsearching\rsearching: 5230 candidates")


@pytest.mark.parametrize("stderr", [False], indirect=True)
def test_plain_lines_are_whole_however_long(stderr: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr.use()
    monkeypatch.setattr(live, "_PLAIN_SECONDS", 0.0)
    sentence = "writing " + "/a/long/way" * 40
    with live.reporter(False) as board:
        board.stage(sentence)
        _settle(board)
        board.progress(SEARCHING)
    assert stderr.getvalue().splitlines() == [f"rlflow: {sentence}", f"rlflow: {live.figures(SEARCHING).text}"]


@pytest.mark.parametrize("stderr", [True], indirect=True)
def test_bars_show_stage_and_figures_within_eighty_columns(stderr: Stream) -> None:
    stderr.use()
    from rich.text import Text

    with live.reporter(None) as board:
        board.stage("loading the model")
        board.stage("searching (mixed, 60 s, 1030 rules) of a model with a long sentence about it")
        _settle(board)
        board.progress(SEARCHING)
        _settle(board)
        time.sleep(0.25)  # the bars are drawn ten times a second
    plain = Text.from_ansi(stderr.getvalue()).plain
    assert "✓ loading the model" in plain and "5230 candidates (2615/s)" in plain and "12 s left" in plain
    assert max(map(len, plain.splitlines())) <= 80 and "…" not in plain


@pytest.mark.parametrize("stderr", [True, False], indirect=True)
@pytest.mark.parametrize("quiet", [None, False, True])
def test_optimize_shows_it(stderr: Stream, quiet: bool | None, model: onnx.ModelProto) -> None:
    stderr.use()
    rlflow.optimize(model, quiet=quiet, **QUICK)
    shown = quiet is False or (quiet is None and stderr.terminal)
    assert ("searching" in stderr.getvalue()) is shown
    if not shown:
        assert stderr.getvalue() == ""


@pytest.mark.parametrize("stderr", [True], indirect=True)
def test_who_listens_is_left_alone_unless_both_are_wanted(stderr: Stream, model: onnx.ModelProto) -> None:
    stderr.use()
    for quiet in (None, False):
        told: list[str] = []
        rlflow.optimize(model, quiet=quiet, on_stage=told.append, **QUICK)
        assert told[0] == "loading the model"
        assert bool(stderr.getvalue()) is (quiet is False)


def test_the_check_says_how_many_inputs_were_run(model: onnx.ModelProto) -> None:
    told: list[CheckProgress] = []
    found = rlflow.optimize(model, on_checking=told.append, **QUICK)
    assert found.improved
    assert [one.inputs for one in told] == list(range(1, len(told) + 1)) and len(told) > 4


def _settle(board: live.Board) -> None:
    """Wait until the display has seen all that was told."""
    end = time.monotonic() + 5.0
    while (board.stages or board.latest is not None) and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.05)
