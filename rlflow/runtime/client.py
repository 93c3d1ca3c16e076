"""The client side: ask the worker, and survive its death."""

from __future__ import annotations

import itertools
import logging
import os
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlflow.errors import RuntimeCrashed, RuntimeUnavailable, UsageError
from rlflow.runtime import worker
from rlflow.runtime.base import runtime
from rlflow.runtime.messages import FeedSpec, Measurement, ModelIO, ModelSource, NodeTime, Samples, TimingPlan
from rlflow.runtime.process import Channel
from rlflow.runtime.session_options import Handle, RuntimeOptions
from rlflow.runtime.sources import Sources

_BATCH_BYTES = 64 << 20

_log = logging.getLogger(__name__)

Feeds = Mapping[str, Any]


class Worker(Channel):
    """A runtime in a process of its own, so that a crash, a hang or a leak there costs one request and nothing else.

    A request that kills the process, or takes longer than its limit, raises :class:`RuntimeCrashed`; one that the
    runtime answers with an error raises :class:`RuntimeRefused`. Either way the next request is served: a new process
    is started and the models that it needs are loaded again. Use as a context manager; the process starts with the
    first request. Not safe for use by several threads at once.
    """

    def __init__(self, options: RuntimeOptions | None = None, *, time_limit: float = 120.0) -> None:
        self.options = options or RuntimeOptions()
        self.runtime = runtime(self.options.runtime)
        reason = self.runtime.missing()
        if reason is not None:
            raise RuntimeUnavailable(reason)
        kind = type(self.runtime)
        super().__init__([self.runtime.name, f"{kind.__module__}:{kind.__qualname__}"], time_limit)
        self._models: dict[int, tuple[bytes | str, RuntimeOptions]] = {}
        self._keys = itertools.count(1)
        self._sources = Sources()
        self._overhead: dict[tuple[RuntimeOptions, int], Measurement] = {}

    def begin_copied(self) -> None:
        """As :meth:`begin`, by a copy of this process, which has its modules: for a program that times nothing."""
        self.begin(None if self.runtime.module in sys.modules else worker.main)  # its threads are not copied

    def close(self) -> None:
        """End the process and remove temporary files; the worker can be used again afterwards, but handles are gone."""
        super().close()
        self._models.clear()
        self._sources.clear()

    def restart(self) -> None:
        """Replace the process by a new one (other addresses, fresh caches); handles stay valid."""
        self._overhead.clear()
        self.replace_process(beside=not self.runtime.on_processor)

    # --- requests -------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Runtime, version, provider, device and available threads; keys as in ``rlflow info``."""
        threads = self.options.threads if self.runtime.sets_threads else 1
        return {**self._ask("describe", self.options.provider), "threads": threads}

    def require_provider(self) -> None:
        """Raise :class:`RuntimeUnavailable`, with what there is, where the runtime lacks the provider asked for."""
        found = self._ask("describe", self.options.provider)
        if self.runtime.has_providers and self.options.provider not in found["providers"]:
            raise RuntimeUnavailable(
                f"This {self.runtime.title} ({found['version']}) has no {self.options.provider}; "
                f"it offers {', '.join(found['providers'])}."
            )

    def peak_memory(self) -> int | None:
        """The largest resident size of the process so far, in bytes; ``None`` where the system does not say."""
        return self._ask("peak_memory")

    def load(
        self,
        model: ModelSource,
        *,
        level: str | None = None,
        threads: int | None = None,
        time_limit: float | None = None,
    ) -> Handle:
        """Open a session on serialized ONNX, or on a file (for weights outside, or more than 2 GB)."""
        options = self._options(level, threads)
        source = self._sources.of(model)
        key = next(self._keys)
        try:
            io, seconds = self._ask("load", key, source, options, time_limit=time_limit)
        except BaseException:
            self._sources.release(source)
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
        self._sources.release(source)

    def prepare(self, handles: Sequence[Handle]) -> None:
        """Load in this order what a fresh process lacks. Requests do it by themselves; this is to time it apart."""
        self._ensure(handles)

    def inspect(self, handle: Handle) -> ModelIO:
        """Names, dtypes and shapes of the inputs and outputs."""
        return handle.io

    def interface(self, model: ModelSource) -> ModelIO:
        """As :meth:`inspect`, of a model that is not loaded; quicker than loading it where the runtime can."""
        return self.with_source(model, None, None, "interface")

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
        keys = [one.key for one in handles]
        return self._ask(
            "time_interleaved", keys, per_model, rounds, inner, seed, seconds, min_rounds, min_sample, long_rounds,
            time_limit=time_limit,
        )  # fmt: skip

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
        timing = TimingPlan(min_time, repeats, seed, flush_bytes, sessions)
        how = (self._options(level, threads), reference, timing)
        results: dict[Any, Measurement | str] = {}
        retried: set[Any] = set()
        while waiting:
            batch = _batch(waiting)
            try:
                for kind, value in self._exchange("measure_many", (batch, *how), time_limit):
                    if kind == "item":
                        results[value[0]] = value[1]
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
            self._overhead[key] = self._ask("overhead", options, TimingPlan(1e-3, 15, 0, flush_bytes, 3))
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
        return self.with_source(model, level, threads, "profile", dict(feeds), runs)

    def optimized(self, model: ModelSource | Handle, *, level: str | None = None) -> bytes:
        """The graph that the runtime makes of ``model`` at ``level``, serialized."""
        return self.with_source(model, level, None, "optimized")

    def write_optimized(self, model: ModelSource | Handle, path: str | os.PathLike[str]) -> None:
        """The same in a file beside that of ``model``; weights in other files there that it leaves as they are stay."""
        self.with_source(model, None, None, "write_optimized", os.path.abspath(path))

    # --- inside ---------------------------------------------------------------------------------------------------

    def _options(self, level: str | None, threads: int | None) -> RuntimeOptions:
        return replace(self.options, level=level or self.options.level, threads=threads or self.options.threads)

    def with_source(
        self, model: ModelSource | Handle, level: str | None, threads: int | None, method: str, *rest: Any
    ) -> Any:
        if isinstance(model, Handle):
            source, options = self._models[model.key]
            options = replace(options, level=level or options.level, threads=threads or options.threads)
            return self._ask(method, source, options, *rest)
        source = self._sources.of(model)
        try:
            return self._ask(method, source, self._options(level, threads), *rest)
        finally:
            self._sources.release(source)

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


def _batch(items: list[tuple[Any, bytes, Any]]) -> list[tuple[Any, bytes, Any]]:
    """As many of the first items as make a request of moderate size."""
    size = 0
    for count, (_, source, _feeds) in enumerate(items, 1):
        size += len(source)
        if size > _BATCH_BYTES:
            return items[:count]
    return items
