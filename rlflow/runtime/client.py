"""The client side: start the worker, ask it, survive its death."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from rlflow.errors import ModelError, RuntimeCrashed, RuntimeRefused, RuntimeUnavailable, UsageError
from rlflow.files import ScratchFolder
from rlflow.processes import python_command, started
from rlflow.runtime import wire
from rlflow.runtime.options import (
    FeedSpec,
    Handle,
    Measurement,
    ModelIO,
    ModelSource,
    NodeTime,
    RuntimeOptions,
    Samples,
    unavailable_reason,
)

#: Models larger than this go to the worker as a file.
_PIPE_BYTES = 4 << 20
_BATCH_BYTES = 64 << 20
_START_SECONDS = 120.0

_log = logging.getLogger(__name__)

Feeds = Mapping[str, Any]


@dataclass
class _Process:
    """A live worker process and the models it holds."""

    child: subprocess.Popen[bytes]
    errors: IO[bytes]
    loaded: set[int] = field(default_factory=set)


class Worker:
    """A runtime in a process of its own, so that a crash, a hang or a leak there costs one request and nothing else.

    A request that kills the process, or takes longer than its limit, raises :class:`RuntimeCrashed`; one that the
    runtime answers with an error raises :class:`RuntimeRefused`. Either way the next request is served: a new process
    is started and the models that it needs are loaded again. Use as a context manager; the process starts with the
    first request. Not safe for use by several threads at once.
    """

    #: Module whose ``main`` the child runs.
    module = "rlflow.runtime.worker"

    def __init__(self, options: RuntimeOptions | None = None, *, time_limit: float = 120.0) -> None:
        self.options = options or RuntimeOptions()
        reason = unavailable_reason(self.options.runtime)
        if reason is not None:
            raise RuntimeUnavailable(reason)
        self.time_limit = time_limit
        self.starts = 0
        self._process: _Process | None = None
        self._starting: _Process | None = None
        self._models: dict[int, tuple[bytes | str, RuntimeOptions]] = {}
        self._keys = itertools.count(1)
        self._folder: ScratchFolder | None = None
        self._spilled: dict[str, list[int]] = {}
        self._overhead: dict[tuple[RuntimeOptions, int], Measurement] = {}

    # --- life -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Process id of the live worker, or ``None``."""
        return None if self._process is None else self._process.child.pid

    def begin(self) -> None:
        """Let the process start, which takes part of a second, without waiting for it: the first request will."""
        if self._process is None and self._starting is None:
            self._starting = self._spawn()

    def close(self) -> None:
        """End the process and remove temporary files; the worker can be used again afterwards, but handles are gone."""
        self._stop(kill=False)
        self._models.clear()
        self._spilled.clear()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def restart(self) -> None:
        """Replace the process by a new one (other addresses, fresh caches); handles stay valid."""
        self._stop(kill=False)
        self._overhead.clear()

    # --- requests -------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Runtime, version, provider, device and available threads; keys as in ``rlflow info``."""
        return {**self._ask("describe", self.options.provider), "threads": self.options.threads}

    def require_provider(self) -> None:
        """Raise :class:`RuntimeUnavailable`, with what there is, where the runtime lacks the provider asked for."""
        found = self._ask("describe", self.options.provider)
        if self.options.runtime == "onnxruntime" and self.options.provider not in found["providers"]:
            raise RuntimeUnavailable(
                f"This ONNX Runtime ({found['version']}) has no {self.options.provider}; "
                f"it offers {', '.join(found['providers'])}."
            )

    def load(
        self,
        model: ModelSource,
        *,
        level: str | None = None,
        threads: int | None = None,
        time_limit: float | None = None,
    ) -> Handle:
        """Open a session on serialized ONNX or on a file (needed where weights are external, or the model exceeds 2
        GB).
        """
        options = self._options(level, threads)
        source = self._source(model)
        key = next(self._keys)
        try:
            io, seconds = self._ask("load", key, source, options, time_limit=time_limit)
        except BaseException:
            self._forget_file(source)
            raise
        self._models[key] = (source, options)
        self._live().loaded.add(key)
        return Handle(key, io, options, seconds)

    def unload(self, handle: Handle) -> None:
        """Free a model; unknown handles are ignored, so that it may be called twice."""
        source, _ = self._models.pop(handle.key, ("", None))
        process = self._process
        if process is not None and handle.key in process.loaded and process.child.poll() is None:
            process.loaded.discard(handle.key)
            try:
                self._ask("unload", handle.key)
            except RuntimeCrashed as error:
                _log.warning("%s The model is gone with it.", error)
        self._forget_file(source)

    def prepare(self, handles: Sequence[Handle]) -> None:
        """Load, in the order given, the models that a fresh process lacks; requests do it by themselves, timing it
        apart is what this is for.
        """
        self._ensure(handles)

    def inspect(self, handle: Handle) -> ModelIO:
        """Names, dtypes and shapes of the inputs and outputs."""
        return handle.io

    def interface(self, model: ModelSource) -> ModelIO:
        """As :meth:`inspect`, of a model that is not loaded; quicker than loading it where the runtime can."""
        return self._with_source(model, None, None, "interface")

    def run(
        self, handle: Handle, feeds: Feeds, outputs: Sequence[str] | None = None, *, time_limit: float | None = None
    ) -> dict[str, Any]:
        """Outputs by name. bfloat16 crosses as float32 (inputs are rounded), sequences as lists of arrays."""
        self._ensure([handle])
        return self._ask("run", handle.key, dict(feeds), outputs, time_limit=time_limit)

    def time_interleaved(
        self,
        handles: Sequence[Handle],
        feeds: Feeds | Sequence[Feeds],
        *,
        rounds: int,
        inner: int | None = None,
        seed: int = 0,
        seconds: float | None = None,
        min_rounds: int = 1,
        min_sample: float = 1e-3,
        long_rounds: int | None = None,
        time_limit: float | None = None,
    ) -> Samples:
        """Time the models in interleaved rounds, in a seeded random order per round.

        Stops after ``seconds`` if that comes first, but not before ``min_rounds``, or ``long_rounds`` where every run
        is a long one.

        ``inner`` runs make one sample (``None``: per model, enough to last ``min_sample`` seconds). Feeds are one
        mapping for all models, or one per model; names that a model does not take are left out.
        """
        if rounds < 1 or not handles:
            raise UsageError(
                f"Timing needs at least one model and one round; got {len(handles)} models and {rounds} rounds."
            )
        per_model = [feeds] * len(handles) if isinstance(feeds, Mapping) else list(feeds)
        self._ensure(handles)
        return self._ask(
            "time_interleaved",
            [h.key for h in handles],
            per_model,
            rounds,
            inner,
            seed,
            seconds,
            min_rounds,
            min_sample,
            long_rounds,
            time_limit=time_limit,
        )

    def measure_many(
        self,
        items: Iterable[tuple[Hashable, bytes, Mapping[str, FeedSpec | np.ndarray] | None]],
        *,
        level: str | None = None,
        threads: int | None = None,
        min_time: float = 2e-4,
        repeats: int = 9,
        seed: int = 0,
        flush_bytes: int = 0,
        sessions: int = 1,
        time_limit: float = 30.0,
        reference: bytes | None = None,
    ) -> dict[Any, Measurement | str]:
        """Price many small models in one round trip: ``(key, serialized model, inputs)`` each.

        Inputs are arrays or :class:`FeedSpec`; ``None`` makes random ones from the model's static shapes. Each model
        is loaded, warmed up and timed ``repeats`` times, a sample being as many runs as last ``min_time`` seconds;
        the clock is that of the options. Two sessions of one model differ by some per cent as long as they live
        (where their buffers lie decides); ``sessions`` above 1 spreads the repeats over several. With ``flush_bytes``
        a sample is one run after walking through that much memory and then through the inputs: weights, code and
        buffers for results are then where they are inside a model, outside the near caches, and only the inputs are
        fresh. A ``reference`` (a serialized model of static shapes) is run and timed before each such sample: it says
        how fast the machine is at that moment (``Measurement.beside``). The answer holds a :class:`Measurement` or,
        where the runtime refused the model, crashed twice on it or exceeded ``time_limit`` seconds, a sentence. The
        overhead of a run is part of the price; see :meth:`overhead`.
        """
        waiting = list(items)
        options = self._options(level, threads)
        results: dict[Any, Measurement | str] = {}
        retried: set[Any] = set()
        while waiting:
            batch = _batch(waiting)
            try:
                self._measure_stream(
                    batch, (options, reference, min_time, repeats, seed, flush_bytes, sessions), results, time_limit
                )
            except RuntimeCrashed as error:
                key = next(key for key, *_ in batch if key not in results)
                # The process may have been damaged by an earlier model: the accused gets one more try, in a fresh
                # process.
                if key in retried or error.timed_out:
                    results[key] = str(error)
                retried.add(key)
            waiting = [item for item in waiting if item[0] not in results]
        return results

    def overhead(self, *, level: str | None = None, threads: int | None = None, flush_bytes: int = 0) -> Measurement:
        """What a run costs before any work is done: the price of an identity on one float, by the same clock
        (measured once a process). ``flush_bytes`` as for :meth:`measure_many`.
        """
        options = self._options(level, threads)
        key = (options, flush_bytes)
        if key not in self._overhead:
            self._overhead[key] = self._ask("overhead", options, 1e-3, 15, flush_bytes)
        return self._overhead[key]

    def profile(
        self,
        model: ModelSource | Handle,
        feeds: Feeds,
        *,
        runs: int = 10,
        level: str | None = None,
        threads: int | None = None,
    ) -> list[NodeTime]:
        """Kernel time per node of the runtime's optimised graph (in a session of its own: profiling slows it)."""
        return self._with_source(model, level, threads, "profile", dict(feeds), runs)

    def optimized(self, model: ModelSource | Handle, *, level: str | None = None) -> bytes:
        """The graph that the runtime makes of ``model`` at ``level``, serialized."""
        return self._with_source(model, level, None, "optimized")

    # --- inside ---------------------------------------------------------------------------------------------------

    def _options(self, level: str | None, threads: int | None) -> RuntimeOptions:
        return replace(self.options, level=level or self.options.level, threads=threads or self.options.threads)

    def _with_source(
        self, model: ModelSource | Handle, level: str | None, threads: int | None, method: str, *rest: Any
    ) -> Any:
        if isinstance(model, Handle):
            source, options = self._models[model.key]
            options = replace(options, level=level or options.level, threads=threads or options.threads)
            return self._ask(method, source, options, *rest)
        source = self._source(model)
        try:
            return self._ask(method, source, self._options(level, threads), *rest)
        finally:
            self._forget_file(source)

    def _source(self, model: ModelSource) -> bytes | str:
        """What is sent: small models as bytes, large ones as the path of a file of ours (equal models share one)."""
        if isinstance(model, (bytes, bytearray, memoryview)):
            data = bytes(model)
            return data if len(data) <= _PIPE_BYTES else self._spill(data)
        path = os.path.abspath(os.fspath(model))
        if not os.path.isfile(path):
            raise ModelError(f"The model file {path} does not exist.")
        return path

    def _spill(self, data: bytes) -> str:
        if self._folder is None:
            self._folder = ScratchFolder("rlflow-models-")
        path = os.path.join(self._folder.name, hashlib.blake2b(data, digest_size=16).hexdigest() + ".onnx")
        if path not in self._spilled:
            Path(path).write_bytes(data)
            self._spilled[path] = [0]
        self._spilled[path][0] += 1
        return path

    def _forget_file(self, source: bytes | str) -> None:
        users = self._spilled.get(source) if isinstance(source, str) else None
        if users is not None and isinstance(source, str):
            users[0] -= 1
            if users[0] == 0:
                del self._spilled[source]
                Path(source).unlink(missing_ok=True)

    def _ensure(self, handles: Sequence[Handle]) -> None:
        """Load again what a new process lacks."""
        for handle in handles:
            if handle.key not in self._models:
                raise UsageError(
                    f"Model {handle.key} is not open in this worker; it was unloaded, or belongs to another worker."
                )
            if handle.key not in self._live().loaded:
                source, options = self._models[handle.key]
                self._ask("load", handle.key, source, options)
                self._live().loaded.add(handle.key)

    def _measure_stream(
        self, items: list[Any], how: tuple[Any, ...], results: dict[Any, Measurement | str], limit: float
    ) -> None:
        options, *rest = how
        for kind, value in self._exchange("measure_many", (items, options, *rest), limit):
            if kind == "item":
                results[value[0]] = value[1]

    def _ask(self, method: str, *arguments: Any, time_limit: float | None = None) -> Any:
        for kind, value in self._exchange(method, arguments, time_limit or self.time_limit):
            if kind == "ok":
                return value
        raise AssertionError("the exchange ends with an answer or raises")

    def _exchange(self, method: str, arguments: Sequence[Any], limit: float) -> Iterable[tuple[str, Any]]:
        """Send a request and yield its answers; each may take ``limit`` seconds. Leaves no half-read pipe behind,
        whatever happens.
        """
        process = self._live()
        answers: list[tuple[str, Any]] = []
        try:
            watch = _Watch(process.child, limit)
            try:
                wire.send(process.child.stdin, (method, arguments, limit))  # type: ignore[arg-type]
                while not answers or answers[-1][0] == "item":
                    answers.append(wire.receive(process.child.stdout))  # type: ignore[arg-type]
                    watch.reset()
                    if answers[-1][0] == "item":
                        yield answers[-1]
            finally:
                watch.stop()
        except (EOFError, OSError) as error:
            sentence = self._obituary(process, method, limit, watch.fired)
            self._stop(kill=True)
            raise RuntimeCrashed(sentence, timed_out=watch.fired) from error
        except BaseException:
            self._stop(kill=True)  # interrupted half-way through a message: the pipe is of no use any more
            raise
        kind, value = answers[-1]
        if kind == "refused":
            raise RuntimeRefused(value)
        if kind == "unavailable":
            raise RuntimeUnavailable(value)
        yield kind, value

    def _live(self) -> _Process:
        if self._process is not None and self._process.child.poll() is not None:
            self._stop(kill=True)  # died between requests
        if self._process is None:
            process, self._starting = self._starting or self._spawn(), None
            self._process = self._greeted(process)
        return self._process

    def _spawn(self) -> _Process:
        if not sys.executable:
            raise RuntimeUnavailable(
                "Python does not know its own executable here, so no worker process can be started."
            )
        errors = tempfile.TemporaryFile(prefix="rlflow-worker-")  # noqa: SIM115 - lives as long as the process
        command = python_command(self.module, "main", [self.options.runtime])
        child = started(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors))
        process = _Process(child, errors)
        self._last_resort = weakref.finalize(self, _discard, process, True)  # for those who never close
        return process

    def _greeted(self, process: _Process) -> _Process:
        """``process`` when it has said that it is there."""
        watch = _Watch(process.child, _START_SECONDS)
        try:
            kind, value = wire.receive(process.child.stdout)  # type: ignore[arg-type]
        except (EOFError, OSError) as error:
            sentence = self._obituary(process, "start", _START_SECONDS, watch.fired)
            self._end(process, kill=True)
            raise RuntimeUnavailable(sentence) from error
        except BaseException:
            self._end(process, kill=True)
            raise
        finally:
            watch.stop()
        if kind != "ok":
            self._end(process, kill=False)
            raise RuntimeUnavailable(value)
        self.starts += 1
        return process

    def _stop(self, kill: bool) -> None:
        for process in (self._process, self._starting):
            if process is not None:
                self._end(process, kill)
        self._process = self._starting = None

    def _end(self, process: _Process, kill: bool) -> None:
        self._last_resort.detach()
        _discard(process, kill)

    def _obituary(self, process: _Process, method: str, limit: float, timed_out: bool) -> str:
        doing = _DOING.get(method, method)
        if timed_out:
            return f"The runtime's process did not answer within {limit:g} s while {doing}; it was stopped."
        try:
            code = process.child.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            process.child.kill()
            return f"The runtime's process closed its pipe while {doing}; it was stopped."
        return f"The runtime's process died while {doing} ({_death(code)}).{_last_words(process.errors)}"


def _discard(process: _Process, kill: bool) -> None:
    """End a process, by closing its pipe or by force, and wait until it is gone."""
    if kill:
        process.child.kill()
    for stream in (process.child.stdin, process.child.stdout):
        with contextlib.suppress(OSError):  # bytes left unsent, for a process that is gone
            stream.close()  # type: ignore[union-attr]
    try:
        process.child.wait(timeout=5.0)
    except subprocess.TimeoutExpired:
        process.child.kill()
        process.child.wait()
    process.errors.close()


def _batch(items: list[tuple[Any, bytes, Any]]) -> list[tuple[Any, bytes, Any]]:
    """As many of the first items as make a request of moderate size."""
    size = 0
    for count, (_, source, _feeds) in enumerate(items, 1):
        size += len(source)
        if size > _BATCH_BYTES:
            return items[:count]
    return items


_DOING = {
    "start": "starting",
    "load": "loading a model",
    "interface": "loading a model",
    "run": "running a model",
    "time_interleaved": "timing models",
    "measure_many": "measuring a model",
    "profile": "profiling a model",
    "optimized": "optimising a model",
}


class _Watch:
    """Kills a process that keeps its client waiting, which turns a hang into an end of file."""

    def __init__(self, child: subprocess.Popen[bytes], seconds: float) -> None:
        self._child, self._seconds = child, seconds
        self.fired = False
        self.reset()

    def reset(self) -> None:
        self.stop()
        self._timer = threading.Timer(self._seconds, self._fire)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        timer: threading.Timer | None = getattr(self, "_timer", None)
        if timer is not None:
            timer.cancel()

    def _fire(self) -> None:
        self.fired = True
        self._child.kill()


def _death(code: int) -> str:
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit status {code}"


def _last_words(errors: IO[bytes]) -> str:
    """The last line that the process wrote to its error stream, as a clause."""
    errors.seek(0, os.SEEK_END)
    errors.seek(max(0, errors.tell() - 4096))
    lines = [line.strip() for line in errors.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return f" Its last words: {lines[-1][:300]}" if lines else ""
