"""Live progress on stderr: bars on a terminal, one line that changes in a notebook, plain lines now and then elsewhere.

What is told is left on a board, and a thread of the display's own reads it: so nothing that searches or measures waits
for a terminal.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rlflow.equivalence.runners import CheckProgress
    from rlflow.price.allowance import PricingProgress
    from rlflow.race.track import RaceProgress
    from rlflow.search import Progress

__all__ = ["Blocks", "Board", "Live", "Notebook", "Plain", "Shown", "figures", "reporter"]

#: Seconds between two lines where stderr is not a terminal, and between two looks at the board.
_PLAIN_SECONDS, _LOOK_SECONDS = 10.0, 0.1


def reporter(quiet: bool | None) -> Board:
    """The board that is shown on this stderr; one that nobody looks at where it is to be ``quiet``. ``None``: shown
    where somebody looks, on a terminal or in a notebook.
    """
    if quiet:
        return Board()
    if _in_notebook():
        return Notebook()
    if _on_terminal():
        return Live()
    return Board() if quiet is None else Plain()


def _on_terminal() -> bool:
    stream = sys.stderr
    return stream is not None and stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class Blocks(NamedTuple):
    """How far a benchmark is, and the seconds that it took."""

    done: int
    total: int
    seconds: float


class Shown(NamedTuple):
    """How far a stage is: the part that is done (``None``: not known), and a line of figures."""

    part: float | None
    text: str


class Board:
    """What ``optimize`` reports to: ``stage`` takes sentences, the others the latest figures."""

    latest: Progress | PricingProgress | RaceProgress | CheckProgress | Blocks | None = None

    def __init__(self) -> None:
        self.stages: deque[str] = deque()
        self.stage = self.stages.append
        self.progress = functools.partial(setattr, self, "latest")
        self._began = time.monotonic()

    def blocks(self, done: int, total: int) -> None:
        """So many blocks of timings, of how many, are done."""
        self.latest = Blocks(done, total, time.monotonic() - self._began)

    def listeners(self, given: Mapping[str, Callable[[Any], None] | None]) -> dict[str, Callable[[Any], None] | None]:
        """The caller's own listeners, ``on_stage`` and others by name, each of which this board hears, too."""
        return dict(given)

    def __enter__(self) -> Board:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class _Watched(Board):
    """A board with a thread that looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def listeners(self, given: Mapping[str, Callable[[Any], None] | None]) -> dict[str, Callable[[Any], None] | None]:
        def both(own: Callable[[Any], None], theirs: Callable[[Any], None] | None) -> Callable[[Any], None]:
            if theirs is None:
                return own

            def told(event: Any) -> None:
                own(event)
                theirs(event)

            return told

        return {name: both(self.stage if name == "on_stage" else self.progress, one) for name, one in given.items()}

    def __enter__(self) -> Board:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        """Show what is new."""
        while self.stages:
            self.begin(self.stages.popleft())
            self.latest = None
        latest, self.latest = self.latest, None
        if latest is not None:
            self.show(figures(latest))

    def begin(self, sentence: str) -> None:
        """Show that a stage begins."""

    def show(self, shown: Shown) -> None:
        """Show how far it is."""


class Plain(_Watched):
    """Lines for logs: every stage, and how far it is every ten seconds. No line is ever cut."""

    def __init__(self) -> None:
        super().__init__()
        self._last = time.monotonic()

    def begin(self, sentence: str) -> None:
        _write(f"rlflow: {sentence}\n")
        self._last = time.monotonic()

    def show(self, shown: Shown) -> None:
        now = time.monotonic()
        if now - self._last >= _PLAIN_SECONDS:
            self._last = now
            _write(f"rlflow: {shown.text}\n")


class Notebook(_Watched):
    """One line that changes, by a carriage return; each stage leaves its own behind."""

    def __init__(self) -> None:
        super().__init__()
        self._stage, self._width = "", 0

    def begin(self, sentence: str) -> None:
        _write("\n" if self._stage else "")
        self._stage, self._width = sentence, 0
        self._rewrite(sentence)

    def show(self, shown: Shown) -> None:
        self._rewrite(f"{self._stage}: {shown.text}")

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _write("\n" if self._stage else "")

    def _rewrite(self, text: str) -> None:
        _write(f"\r{text:{self._width}}")
        self._width = len(text)


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the reader left, as `2>&1 | head` does; the result is still wanted
        sys.stderr.write(text)
        sys.stderr.flush()


class Live(_Watched):
    """A bar for each stage, and under them the figures of the one that runs; all of it goes at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._bars = _bars()
        self._task: Any = None

    def __enter__(self) -> Board:
        self._bars.start()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._bars.stop()

    def begin(self, sentence: str) -> None:
        self._finish()
        self._bars.figures = ""
        self._task = self._bars.add_task(sentence, total=None)

    def show(self, shown: Shown) -> None:
        if self._task is None:
            self.begin("working")
        self._bars.figures = shown.text
        if shown.part is not None:
            self._bars.update(self._task, total=1.0, completed=min(max(shown.part, 0.0), 0.999))

    def _finish(self) -> None:
        if self._task is not None:
            self._bars.update(self._task, total=1.0, completed=1.0)


def _bars() -> Any:
    from rich.console import Console, RenderableType
    from rich.padding import Padding
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    class Bars(Progress):
        """As rich's, with a line of figures below, which wraps where a column would be cut."""

        figures = ""

        def get_renderables(self) -> Any:
            shown: list[RenderableType] = [self.make_tasks_table(self.tasks)]
            if self.figures:
                shown.append(Padding(Text(self.figures), (0, 0, 0, 2)))
            return shown

    what = TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold"))
    columns = (SpinnerColumn(finished_text="✓"), what, BarColumn(20), TimeElapsedColumn())
    return Bars(*columns, console=Console(stderr=True, highlight=False), transient=True)


def figures(latest: Any) -> Shown:
    """How far a stage is, in words: how many of how many, how fast, the best so far, and the time that is left."""
    kind = type(latest).__name__
    return _SHOWN[kind](latest)


def _searching(told: Progress) -> Shown:
    """``5230 candidates (1200/s), 61 graphs opened, best 12.31 ms (-8.2 %), 12 s left``."""
    change = 100.0 * (told.best_ms / told.cost_before_ms - 1.0) if told.cost_before_ms > 0 else 0.0
    parts = [
        f"{told.candidates} candidates ({told.candidates / max(told.seconds, 1e-9):.0f}/s)",
        f"{told.expansions} graphs opened",
        *([f"{told.measurements} measured"] if told.measurements else []),
        f"best {told.best_ms:.4g} ms ({change:+.1f} %)",
        _left(told.seconds_left) or f"{100.0 * told.fraction:.0f} % of the budget",
    ]
    return Shown(told.fraction, ", ".join(parts))


def _pricing(told: PricingProgress) -> Shown:
    """``24 of 96 regions priced, 3.1/s, 23 s left``."""
    parts = [f"{told.done} of {told.total} regions priced", f"{told.rate:.1f}/s", _left(told.seconds_left)]
    return Shown(told.done / max(told.total, 1), ", ".join(filter(None, parts)))


def _timing(told: RaceProgress) -> Shown:
    """``block 7 of about 14, 1.310 times as fast so far, 12 s left``."""
    so_far = None if told.speedup is None else f"{told.speedup:.3f} times as fast so far"
    parts = [f"{told.what}: block {told.done} of about {max(told.done, told.total)}", so_far, _left(told.seconds_left)]
    return Shown(told.done / max(told.total, told.done, 1), ", ".join(filter(None, parts)))


def _checking(told: CheckProgress) -> Shown:
    """``31 inputs run, 8.2/s, 4 s left``."""
    rate = f"{told.inputs / max(told.seconds, 1e-9):.1f}/s"
    text = ", ".join(filter(None, [f"{told.inputs} inputs run", rate, _left(told.seconds_left)]))
    if told.seconds_left is None:
        return Shown(None, text)
    return Shown(told.seconds / max(told.seconds + told.seconds_left, 1e-9), text)


def _benchmark(told: Blocks) -> Shown:
    """``3 of 7 blocks, 0.5/s, 8 s left``."""
    rate = told.done / max(told.seconds, 1e-9)
    text = f"{told.done} of {told.total} blocks, {rate:.2g}/s, {_left((told.total - told.done) / max(rate, 1e-9))}"
    return Shown(told.done / max(told.total, 1), text)


def _left(seconds: float | None) -> str | None:
    return None if seconds is None else f"{max(seconds, 0.0):.0f} s left"


#: By the name of what is told: its types belong to packages that are opened when they are needed.
_SHOWN: dict[str, Callable[[Any], Shown]] = {
    "Progress": _searching,
    "PricingProgress": _pricing,
    "RaceProgress": _timing,
    "CheckProgress": _checking,
    "Blocks": _benchmark,
}
