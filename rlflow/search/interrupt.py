"""Ctrl-C: the first one asks the search to end with the best so far, the second one ends the program."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

from rlflow import interrupts


class StopToken:
    """A flag that any thread may set and the search reads between steps."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._followers: list[Callable[[], object]] = []

    def stop(self) -> None:
        """Ask for the end; the best so far is returned."""
        self._event.set()
        for follower in self._followers:
            follower()

    def when_stopped(self, follower: Callable[[], object]) -> None:
        """Call ``follower`` when the end is asked for (at once if it was): how native loops learn of it."""
        self._followers.append(follower)
        if self.stopped:
            follower()

    @property
    def stopped(self) -> bool:
        """Whether the end was asked for."""
        return self._event.is_set()


class InterruptGuard:
    """While entered (in the main thread), SIGINT sets the token; a second SIGINT raises ``KeyboardInterrupt``.

    ``heard`` is what guards of one run share, so that the second one counts as such in whichever of them it comes: it
    is set by a SIGINT only. In other threads, where Python allows no signal handlers, a guard does nothing.
    """

    def __init__(self, token: StopToken, heard: StopToken | None = None) -> None:
        self.token, self._heard = token, token if heard is None else heard
        self._previous: object = None
        self._entered = False

    def __enter__(self) -> InterruptGuard:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
            self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._entered:
            # None: the previous handler was not installed from Python and cannot be put back; the default one is the
            # nearest thing.
            signal.signal(signal.SIGINT, signal.default_int_handler if self._previous is None else self._previous)  # type: ignore[arg-type]
            self._entered = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.token.stopped or self._heard.stopped or interrupts.arrived() > 1:
            raise KeyboardInterrupt
        self._heard.stop()
        self.token.stop()
