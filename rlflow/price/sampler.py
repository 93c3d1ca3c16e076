"""Times whole models in a worker, block by block: a new process, new sessions, interleaved rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rlflow.errors import CostError, GraphError, RuntimeCrashed, RuntimeRefused
from rlflow.runtime import Handle, ModelSource, Samples, Worker

#: Rounds that a block has at least; of models whose runs are long fewer do, because loading them takes most of it.
MIN_ROUNDS, LONG_ROUNDS = 3, 1
MAX_ROUNDS = 200
#: Rounds take at least this part of what starting the process and loading the models took, but no more than the block
#: was given: beside other programs a start takes seconds, and rounds that follow it are nearly free.
ROUNDS_SHARE = 0.5

LazySource = ModelSource | Callable[[], ModelSource]


class WorkerSampler:
    """Times models in a worker, a new process and new sessions for every block."""

    def __init__(self, worker: Worker, models: Mapping[str, LazySource], feeds: Mapping[str, Any]) -> None:
        self.worker, self.models, self.feeds = worker, dict(models), feeds
        self.clock = worker.options.effective_clock
        self.afford_selection = True
        self._handles: dict[str, Handle] = {}
        self._seconds: dict[str, float] = {}
        self._fresh = False
        self._outputs: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> WorkerSampler:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles.values():
            self.worker.unload(handle)
        self._handles.clear()

    @property
    def names(self) -> list[str]:
        return list(self.models)

    def screen(
        self, baseline: str, affordable: Callable[[float, float], bool] | None = None, seed: int = 0
    ) -> dict[str, str]:
        """Load and run every model once by itself; the sentences of those that cannot take part.

        ``affordable`` is asked, before each further candidate, whether so many seconds for one block with it are worth
        it, and so many for making and opening all of them. Where they are not, no more are taken; where that leaves
        one, ``afford_selection`` becomes false.
        Raises :class:`CostError` where the baseline cannot take part.
        """
        dropped: dict[str, str] = {}
        outputs: dict[str, dict[str, Any]] = {}
        full, began = False, time.perf_counter()
        for name in self._screening_order(baseline, seed):
            count = len(self._handles)
            if not full and count >= 2 and affordable is not None:
                opening = (time.perf_counter() - began) * (count + 1) / count
                full = not affordable(self._block_seconds(), opening)
            if full and name.startswith("candidate:"):
                del self.models[name]
                continue
            try:
                outputs[name] = self._try(name)
            except (RuntimeCrashed, RuntimeRefused, GraphError) as error:
                if name == baseline:
                    raise CostError(f"The model to compare with cannot be timed: {error}") from error
                dropped[name] = str(error)
            if len(self._outputs) < 2 and name in outputs:  # of more models they would be a lot
                self._outputs[name] = outputs[name]
            for other in [other for other in outputs if baseline in outputs and other != baseline]:
                bad = _newly_not_finite(outputs[baseline], outputs.pop(other))
                if bad is not None:
                    dropped[other] = (
                        f"The output {bad!r} holds values that are not finite, where the baseline's are finite."
                    )
                    self.worker.unload(self._handles.pop(other))
        entrants = [name for name in self._handles if name.startswith("candidate:")]
        self.afford_selection = not full or len(entrants) > 1
        self._fresh = True
        return dropped

    def _screening_order(self, baseline: str, seed: int) -> list[str]:
        """The baseline and the first other model in random order, because the first block may go on with these
        sessions; then the others.
        """
        first = [baseline, *[name for name in self.models if name != baseline]]
        pair = np.random.default_rng([seed, 2]).permutation(len(first[:2]))
        return [first[index] for index in pair] + first[2:]

    def _block_seconds(self) -> float:
        """About what one block would take with the models that are loaded, and one more."""
        each = [handle.load_seconds + 2.0 * self._seconds[name] for name, handle in self._handles.items()]
        return (len(each) + 1) * float(np.mean(each))

    def run(self, name: str, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs of a model, by its name with or without the kind before the colon."""
        full = next(known for known in self._handles if name in (known, known.split(":", 1)[-1]))
        if feeds is self.feeds and full in self._outputs:
            return self._outputs[full]
        return self.worker.run(self._handles[full], feeds)

    def add(self, name: str, source: ModelSource) -> dict[str, Any]:
        """Make a model known; its outputs. Raises what the runtime says."""
        self.models[name] = source
        return self._try(name)

    def drop(self, name: str) -> None:
        """Forget a model."""
        self.models.pop(name, None)
        handle = self._handles.pop(name, None)
        if handle is not None:
            self.worker.unload(handle)

    def _try(self, name: str) -> dict[str, Any]:
        handle = self.worker.load(made(self.models[name]))
        try:
            started = time.perf_counter()
            outputs = self.worker.run(handle, self.feeds)
            self._seconds[name] = time.perf_counter() - started
        except BaseException:
            self.worker.unload(handle)
            raise
        self._handles[name] = handle
        return outputs

    def block(self, names: Sequence[str], seed: int, seconds: float) -> Samples:
        """Interleaved timings in a new process; the first block goes on with that of the screening."""
        started = time.perf_counter()
        loaded = self._fresh and set(names) == set(self._handles)
        if loaded:  # it gets as many rounds as the others, which load the models first
            seconds -= sum(self._handles[name].load_seconds for name in names)
        else:
            self.worker.restart()
        self._fresh = False
        # Who is loaded first gets other addresses, so that is random too; and independent of the order of the rounds,
        # or one model would go first more often than another.
        order = np.random.default_rng([seed, 1]).permutation(len(names))
        shuffled = [self._handles[names[index]] for index in order]
        total = sum(self._seconds[name] for name in names)
        self.worker.prepare(shuffled)
        setup = time.perf_counter() - started
        samples = self.worker.time_interleaved(
            shuffled,
            self.feeds,
            rounds=MAX_ROUNDS,
            min_rounds=MIN_ROUNDS,
            long_rounds=LONG_ROUNDS,
            seed=seed + 1,
            seconds=max(0.0, seconds - setup, min(seconds, ROUNDS_SHARE * setup)),
            time_limit=self.worker.time_limit + 2 * max(0.0, seconds) + 4 * (MIN_ROUNDS + 3) * total,
        )
        back = np.argsort(order)
        return Samples(samples.wall_ms[:, back], samples.cpu_ms[:, back], tuple(samples.inner[index] for index in back))


def made(source: LazySource) -> ModelSource:
    """A model that is there, or made now."""
    return source() if callable(source) else source


def _newly_not_finite(reference: Mapping[str, Any], outputs: Mapping[str, Any]) -> str | None:
    for name, value in outputs.items():
        if _finite(reference.get(name)) and not _finite(value):
            return name
    return None


def _finite(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_finite, value))
    return not (isinstance(value, np.ndarray) and value.dtype.kind in "fc") or bool(np.isfinite(value).all())
