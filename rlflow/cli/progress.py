"""Live progress on stderr: one changing line on a terminal, a plain line now and then elsewhere.

What is told is left on a board, and a thread of the display's own reads it: so nothing that searches or measures waits
for a terminal, or calls up into the command line.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from rlflow.price.allowance import PricingProgress
    from rlflow.search import Progress

#: Seconds between two lines where stderr is not a terminal, and between two looks at the board.
_PLAIN_SECONDS, _LOOK_SECONDS = 10.0, 0.1


def reporter(quiet: bool) -> Board:
    """The board that is shown on this stderr; one that nobody looks at where it is to be ``quiet``."""
    if quiet:
        return Board()
    return Live() if sys.stderr.isatty() else Plain()


class Blocks(NamedTuple):
    """How far a comparison by the clock is."""

    done: int
    total: int


class Board:
    """What ``optimize`` reports to: ``stage`` takes sentences, ``progress`` and ``pricing`` the latest figures."""

    latest: Progress | PricingProgress | Blocks | None = None

    def __init__(self) -> None:
        self.stages: deque[str] = deque()
        self.stage = self.stages.append
        self.progress = self.pricing = functools.partial(setattr, self, "latest")

    def blocks(self, done: int, total: int) -> None:
        """So many blocks of timings, of how many, are done."""
        self.latest = Blocks(done, total)

    def __enter__(self) -> Board:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class _Shown(Board):
    """A board with a thread that looks at it."""

    def __init__(self) -> None:
        super().__init__()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

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
            self.figures(figures(latest))

    def begin(self, sentence: str) -> None:
        """Show that a stage begins."""

    def figures(self, text: str) -> None:
        """Show how far it is."""


class Plain(_Shown):
    """Lines for logs: every stage, and the search every ten seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._last = time.monotonic()

    def begin(self, sentence: str) -> None:
        _say(sentence)
        self._last = time.monotonic()

    def figures(self, text: str) -> None:
        now = time.monotonic()
        if now - self._last >= _PLAIN_SECONDS:
            self._last = now
            _say(text)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the reader left, as `2>&1 | head` does; the result is still wanted
        click.echo(f"rlflow: {text}", err=True)


class Live(_Shown):
    """One line that changes, with a spinner."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.status import Status

        super().__init__()
        self._status = Status("starting", console=Console(stderr=True, highlight=False))
        self._stage = ""

    def __enter__(self) -> Board:
        self._status.start()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._status.stop()

    def begin(self, sentence: str) -> None:
        self._stage = sentence
        self._status.update(_escaped(sentence))

    def figures(self, text: str) -> None:
        self._status.update(_escaped(f"{self._stage}: {text}"))


def figures(latest: Any) -> str:
    """How far a search, or its pricing, is."""
    if isinstance(latest, Blocks):
        return f"{latest.done} of {latest.total} blocks"
    return line(latest) if hasattr(latest, "best_ms") else pricing_line(latest)


def line(progress: Progress) -> str:
    """``best 12.31 ms (-8.2 %), 5230 candidates/s, 12 s left``."""
    change = 100.0 * (progress.best_ms / progress.cost_before_ms - 1.0) if progress.cost_before_ms > 0 else 0.0
    parts = [
        f"best {progress.best_ms:.4g} ms ({change:+.1f} %)",
        f"{progress.candidates / max(progress.seconds, 1e-9):.0f} candidates/s",
    ]
    if progress.measurements:
        parts.append(f"{progress.measurements} measured")
    if progress.seconds_left is not None:
        parts.append(f"{progress.seconds_left:.0f} s left")
    else:
        parts.append(f"{100.0 * progress.fraction:.0f} % of the budget")
    return ", ".join(parts)


def pricing_line(progress: PricingProgress) -> str:
    """``24 of 96 regions priced, 3.1/s, 23 s left``."""
    left = "" if progress.seconds_left is None else f", {progress.seconds_left:.0f} s left"
    return f"{progress.done} of {progress.total} regions priced, {progress.rate:.1f}/s{left}"


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
