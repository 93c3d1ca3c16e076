"""Live progress on stderr: one changing line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import click

if TYPE_CHECKING:
    from rlflow.price.allowance import PricingProgress
    from rlflow.search import Progress

#: Seconds between two lines where stderr is not a terminal.
_PLAIN_SECONDS = 10.0


class Reporter(Protocol):
    """What ``optimize`` reports to."""

    def __enter__(self) -> Reporter: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def stage(self, sentence: str) -> None: ...
    def progress(self, progress: Progress) -> None: ...
    def pricing(self, progress: PricingProgress) -> None: ...


def reporter(quiet: bool) -> Reporter:
    """The reporter for this stderr."""
    if quiet:
        return Silent()
    return Live() if sys.stderr.isatty() else Plain()


class Silent:
    """Says nothing."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def stage(self, sentence: str) -> None:
        """Ignored."""

    def progress(self, progress: Progress) -> None:
        """Ignored."""

    def pricing(self, progress: PricingProgress) -> None:
        """Ignored."""


class Plain(Silent):
    """Lines for logs: every stage, and the search every ten seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def stage(self, sentence: str) -> None:
        _say(sentence)
        self._last = time.monotonic()

    def progress(self, progress: Progress) -> None:
        self._now_and_then(line(progress))

    def pricing(self, progress: PricingProgress) -> None:
        self._now_and_then(pricing_line(progress))

    def _now_and_then(self, text: str) -> None:
        now = time.monotonic()
        if now - self._last >= _PLAIN_SECONDS:
            self._last = now
            _say(text)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the reader left, as `2>&1 | head` does; the result is still wanted
        click.echo(f"rlflow: {text}", err=True)


class Live(Silent):
    """One line that changes, with a spinner."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.status import Status

        self._console = Console(stderr=True, highlight=False)
        self._status = Status("starting", console=self._console)
        self._stage = ""

    def __enter__(self) -> Live:
        self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.stop()

    def stage(self, sentence: str) -> None:
        self._stage = sentence
        self._status.update(_escaped(sentence))

    def progress(self, progress: Progress) -> None:
        self._status.update(_escaped(f"{self._stage}: {line(progress)}"))

    def pricing(self, progress: PricingProgress) -> None:
        self._status.update(_escaped(f"{self._stage}: {pricing_line(progress)}"))


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
