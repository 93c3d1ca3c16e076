"""Requests through the parts of a model, all parts at work at once: ``rlflow run``."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rlflow.errors import UsageError
from rlflow.splitting.manifest import Manifest, checked_file
from rlflow.splitting.stations import Station, Stop, WorkerLost, cores_for

_T = TypeVar("_T")
Feeds = Mapping[str, np.ndarray]
#: Requests at a worker: the one that it runs and the one that it runs next.
_AHEAD = 2
_TICK = 0.1


@dataclass(frozen=True)
class Served:
    """What came of some requests: ``outputs`` in their order, the ``seconds`` of all, and of the first. ``processor``:
    the processor seconds that each worker took a request.
    """

    outputs: list[dict[str, np.ndarray]]
    seconds: float
    first: float
    processor: tuple[float, ...] = ()

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.outputs) / max(self.seconds, 1e-12)


class _Stopped(Exception):  # noqa: N818 - not an error: another thread has one
    """Something failed elsewhere."""


class Coordinator:
    """The workers of a model's parts, in order. Values run from a worker to the next by way of this process.

    Use as a context manager: leaving it ends the workers. Raises :class:`WorkerLost` for a worker that dies, falls
    silent for ``seconds``, or refuses a request; after that none of them is used again.
    """

    def __init__(self, stations: Sequence[Station], outputs: Sequence[str]) -> None:
        self._stations, self._outputs = list(stations), list(outputs)
        later = set(self._outputs)
        self._needed: list[frozenset[str]] = []
        for station in reversed(self._stations):
            self._needed.insert(0, frozenset(later))
            later |= set(station.stop.inputs)
        self._failure: BaseException | None = None
        self._guard = threading.Lock()
        self._stop = threading.Event()

    @classmethod
    def here(
        cls,
        stops: Sequence[Stop],
        outputs: Sequence[str],
        *,
        threads: int = 1,
        pin: bool = False,
        seconds: float = 60.0,
    ) -> Coordinator:
        """A process of this machine for each part; with ``pin`` each stays on a processor of its own."""
        stations = [Station(stop, seconds) for stop in stops]
        cores = cores_for(len(stops)) if pin else None
        made = cls(stations, outputs)
        try:
            for number, station in enumerate(stations):
                station.start(threads, None if cores is None else cores[number])
            for station in stations:
                station.ready()
        except BaseException:
            made.close()
            raise
        return made

    @classmethod
    def elsewhere(
        cls,
        stops: Sequence[Stop],
        outputs: Sequence[str],
        places: Sequence[tuple[str, int]],
        token: bytes,
        *,
        seconds: float = 60.0,
    ) -> Coordinator:
        """Workers that wait on hosts, (name, port) each, in the order of their parts."""
        if len(places) != len(stops):
            raise UsageError(f"The model has {len(stops)} parts, and {len(places)} hosts are named; expected one each.")
        made = cls([Station(stop, seconds) for stop in stops], outputs)
        try:
            for station, (host, port) in zip(made._stations, places, strict=True):
                station.connect(host, port, token)
                station.ready()
        except BaseException:
            made.close()
            raise
        return made

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        self._stop.set()
        for station in self._stations:
            station.close()

    def serve(self, feeds: Iterable[Feeds]) -> Served:
        """Send all requests through, as fast as the parts take them; the answers in their order."""
        before = [station.processor for station in self._stations]
        began = time.perf_counter()
        outputs, first = [], 0.0
        for one in self.stream(feeds):
            first = first or time.perf_counter() - began
            outputs.append(one)
        seconds = time.perf_counter() - began
        spent = [station.processor - start for station, start in zip(self._stations, before, strict=True)]
        return Served(outputs, seconds, first, tuple(one / max(len(outputs), 1) for one in spent))

    def stream(self, feeds: Iterable[Feeds]) -> Iterator[dict[str, np.ndarray]]:
        """The outputs of each request by name, as they come; a few requests are under way at any time."""
        lines: list[queue.Queue[Any]] = [queue.Queue(_AHEAD) for _ in range(len(self._stations) + 1)]
        jobs: list[Callable[[], None]] = [lambda: self._feed(feeds, lines[0])]
        for k, station in enumerate(self._stations):
            jobs += self._work(station, self._needed[k], lines[k], lines[k + 1])
        threads = [threading.Thread(target=self._guarded, args=(job,), daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        whole = False
        try:
            while (item := self._get(lines[-1])) is not None:
                yield {name: item[1][name] for name in self._outputs}
            whole = True
        except _Stopped:
            raise self._failure or UsageError("The workers were ended while requests were under way.") from None
        finally:
            if not whole:
                self._stop.set()  # nobody wants the rest
            for thread in threads:
                thread.join(timeout=10.0)

    def _feed(self, feeds: Iterable[Feeds], line: queue.Queue[Any]) -> None:
        for number, one in enumerate(feeds):
            self._put(line, (number, dict(one)))
        self._put(line, None)

    def _work(
        self, station: Station, needed: frozenset[str], line: queue.Queue[Any], after: queue.Queue[Any]
    ) -> list[Callable[[], None]]:
        """Two threads' work: one sends requests to the worker, the other takes its answers on."""
        waiting: queue.Queue[Any] = queue.Queue(_AHEAD)

        def ask() -> None:
            while (item := self._get(line)) is not None:
                number, known = item
                self._put(waiting, item)
                station.ask(number, {name: known[name] for name in station.stop.inputs})
            self._put(waiting, None)

        def take() -> None:
            while (item := self._get(waiting)) is not None:
                number, known = item
                known = {**known, **station.answered(number)}
                self._put(after, (number, {name: known[name] for name in needed if name in known}))
            self._put(after, None)

        return [ask, take]

    def _guarded(self, job: Callable[[], None]) -> None:
        """The first thread that fails says why; the connections end, which wakes the others."""
        try:
            job()
        except _Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever it was, it is raised where the answers are taken
            with self._guard:
                if self._failure is None and not self._stop.is_set():
                    self._failure = error
                    self._stop.set()
                    for station in self._stations:
                        if station.link is not None:
                            station.link.close()

    def _put(self, line: queue.Queue[Any], item: Any) -> None:
        self._until(lambda: line.put(item, timeout=_TICK))

    def _get(self, line: queue.Queue[Any]) -> Any:
        return self._until(lambda: line.get(timeout=_TICK))

    def _until(self, step: Callable[[], _T]) -> _T:
        while not self._stop.is_set():
            try:
                return step()
            except (queue.Full, queue.Empty):
                continue
        raise _Stopped


def stops_of(manifest: Manifest, folder: str | None = None) -> list[Stop]:
    """The parts of a split model; where workers are started here, with the files, once they are what they should be."""
    return [
        Stop(
            title_of(manifest, number),
            tuple(info.name for info in part.inputs),
            tuple(info.name for info in part.outputs),
            "" if folder is None else checked_file(folder, part),
        )
        for number, part in enumerate(manifest.parts)
    ]


def title_of(manifest: Manifest, number: int) -> str:
    """What a part is called: its number, and the beginning of its digest, by which two splits are told apart."""
    return f"part {number} of {len(manifest.parts)} ({manifest.parts[number].sha256[:12]})"


def whole_stop(path: str, manifest: Manifest) -> Stop:
    """The whole model as the only part."""
    inputs, outputs = ([info.name for info in infos] for infos in (manifest.inputs, manifest.outputs))
    return Stop("the whole model", tuple(inputs), tuple(outputs), path)


__all__ = ["Coordinator", "Served", "WorkerLost", "stops_of", "title_of", "whole_stop"]
