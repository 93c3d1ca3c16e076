"""The worker process: answers requests on its standard input until that closes.

A request is ``(method, arguments, seconds)``; the answer one or more messages, the last of them ``("ok", value)``,
``("refused", sentence)`` or ``("unavailable", sentence)``. What native code prints goes to standard error, never into
the pipe.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, NoReturn, Protocol

from rlflow.errors import CostError, RuntimeRefused, RuntimeUnavailable, UsageError
from rlflow.processes import leave
from rlflow.runtime import loops, wire
from rlflow.runtime.base import RUNTIMES, Runtime, runtime
from rlflow.runtime.messages import TimingPlan
from rlflow.runtime.session_options import RuntimeOptions

_GRACE = 10.0


class Service:
    """The requests that a worker understands, one method each."""

    def __init__(self, answer: Callable[[Any], None], runtime: Runtime) -> None:
        self._runtime = runtime
        self._answer = answer
        self._open: dict[int, Any] = {}
        self._references: dict[tuple[bytes, RuntimeOptions], Callable[[], None]] = {}

    @property
    def title(self) -> str:
        return self._runtime.title

    def start(self) -> None:
        self._runtime.start()

    def describe(self, provider: str) -> dict[str, Any]:
        return self._runtime.describe(provider)

    def load(self, key: int, source: bytes | str, options: RuntimeOptions) -> tuple[Any, float]:
        session = self._runtime.open(source, options)
        self._open[key] = session
        return session.io, session.load_seconds

    def interface(self, source: bytes | str, options: RuntimeOptions) -> Any:
        return self._runtime.interface(source, options)

    def unload(self, key: int) -> None:
        self._open.pop(key, None)

    def peak_memory(self) -> int | None:
        return loops.peak_memory()

    def run(self, key: int, feeds: Mapping[str, Any], outputs: Sequence[str] | None) -> dict[str, Any]:
        return self._open[key].run(feeds, outputs)

    def time_interleaved(self, keys: Sequence[int], feeds: Sequence[Mapping[str, Any]], *how: Any) -> Any:
        return loops.time_interleaved([self._open[key] for key in keys], feeds, *how)

    def measure_many(
        self,
        items: Sequence[tuple[Any, bytes, Mapping[str, Any] | None]],
        options: RuntimeOptions,
        reference: bytes | None,
        timing: TimingPlan,
    ) -> None:
        """One message per item as soon as it is done, so that a crash loses nothing but the item that caused it."""
        beside = self._reference(reference, options)
        for key, source, specs in items:
            try:
                result: Any = self._runtime.measure(source, specs, options, timing, beside)
            except RuntimeUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - the other models must still be measured
                result = _sentence(error, self._runtime.title)
            self._answer(("item", (key, result)))

    def _reference(self, source: bytes | None, options: RuntimeOptions) -> Callable[[], None] | None:
        """What runs a model on random inputs; opened once."""
        if source is None:
            return None
        if (source, options) not in self._references:
            session = self._runtime.open(source, options)
            self._references[source, options] = session.runner(loops.random_feeds(session, None, 0))
        return self._references[source, options]

    def overhead(self, options: RuntimeOptions, timing: TimingPlan) -> Any:
        return loops.measure(self._runtime.open, loops.identity_model(), None, options, timing)

    def profile(self, source: bytes | str, options: RuntimeOptions, feeds: Mapping[str, Any], runs: int) -> Any:
        return self._runtime.profile(source, options, feeds, runs)

    def optimized(self, source: bytes | str, options: RuntimeOptions) -> bytes:
        return self._runtime.optimized(source, options)

    def write_optimized(self, source: bytes | str, options: RuntimeOptions, path: str) -> None:
        self._runtime.write_optimized(source, options, path)

    def memory_trace(self, source: bytes | str, options: RuntimeOptions, feeds: Mapping[str, Any]) -> Any:
        return self._runtime.memory_trace(source, options, feeds)

    def resident(self, source: bytes | str, options: RuntimeOptions, feeds: Mapping[str, Any], runs: int) -> Any:
        from rlflow.runtime import residence

        return residence.resident(self._runtime.open(source, options), feeds, runs)


def main() -> NoReturn:
    """Serve the pipe on the standard streams, with the runtime that ``sys.argv[1:]`` names (and says where it is). The
    process ends with it: its client waits for that.
    """
    name, place = sys.argv[1:]

    def make(answer: Callable[[Any], None]) -> Service:
        RUNTIMES.place(name, place)  # the parent may know it from elsewhere
        return Service(answer, runtime(name))

    leave(serve(f"The runtime {name}", make))


class Serving(Protocol):
    """What answers requests in a process of ours: each is a method, and ``title`` its name in sentences."""

    @property
    def title(self) -> str: ...

    def start(self) -> None:
        """Get ready; raises ImportError or UsageError where that cannot be."""
        ...


def serve(what: str, make: Callable[[Callable[[Any], None]], Serving]) -> int:
    """Answer the requests on the standard streams until they end; returns the exit status.

    ``make`` gets what sends an item of a longer answer. ``what`` names the service in the sentence about why it cannot
    start.
    """
    requests, answers = _private_streams()
    limit = _Limit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it may still want an answer

    def answer(message: Any) -> None:
        wire.send(answers, message)
        limit.arm()

    try:
        service = make(answer)
        service.start()
    except (ImportError, UsageError) as error:
        wire.send(answers, ("unavailable", f"{what} cannot be used here: {error}"))
        return 1
    wire.send(answers, ("ok", os.getpid()))
    while True:
        try:
            method, arguments, seconds = wire.receive(requests)
        except EOFError:
            return 0
        limit.arm(seconds)
        reply = _handle(service, method, arguments)
        limit.disarm()
        try:
            wire.send(answers, reply)
        except OSError:
            return 0


class _Limit:
    """Ends this process when an answer is overdue: should the parent die while native code runs, nobody else would."""

    _seconds = 0.0

    def arm(self, seconds: float | None = None) -> None:
        self._seconds = self._seconds if seconds is None else seconds
        faulthandler.dump_traceback_later(self._seconds + _GRACE, exit=True)

    def disarm(self) -> None:
        faulthandler.cancel_dump_traceback_later()


def _handle(service: Serving, method: str, arguments: Sequence[Any]) -> tuple[str, Any]:
    try:
        return "ok", getattr(service, method)(*arguments)
    except RuntimeUnavailable as error:
        return "unavailable", str(error)
    except Exception as error:  # noqa: BLE001 - whatever went wrong, the parent needs a sentence
        return "refused", _sentence(error, service.title)


def _sentence(error: Exception, name: str) -> str:
    if isinstance(error, (CostError, UsageError)):
        return str(error)
    if isinstance(error, MemoryError):
        return "The model does not fit into memory."
    kind = "" if isinstance(error, RuntimeRefused) else f"{type(error).__name__}: "
    return f"{name} failed: {kind}{' '.join(str(error).split())[:400]}"


def _private_streams() -> tuple[BinaryIO, BinaryIO]:
    """The pipe under private descriptors, with the standard ones turned away from it."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return requests, answers


if __name__ == "__main__":
    main()
